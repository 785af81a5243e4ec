// A reliable connection of a process with itself: transfers that a NIC makes by the keys that a registration
// gave.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace pinion {

/// The first RDMA device, a protection domain, and two queue pairs connected with each other. One thread.
/// Ends the process where the machine has none.
class LoopedQueuePair {
 public:
  LoopedQueuePair() {
    ibv_device** const devices = ibv_get_device_list(nullptr);
    context_ = need(devices != nullptr && devices[0] != nullptr ? ibv_open_device(devices[0]) : nullptr);
    ibv_free_device_list(devices);
    pd_ = need(ibv_alloc_pd(context_));
    completions_ = need(ibv_create_cq(context_, 16, nullptr, nullptr, 0));
    ends_[0] = make_end();
    ends_[1] = make_end();
    connect(ends_[0], ends_[1]);
    connect(ends_[1], ends_[0]);
  }
  ~LoopedQueuePair() {
    ibv_destroy_qp(ends_[0]);
    ibv_destroy_qp(ends_[1]);
    ibv_destroy_cq(completions_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  LoopedQueuePair(const LoopedQueuePair&) = delete;
  LoopedQueuePair& operator=(const LoopedQueuePair&) = delete;

  ibv_pd* pd() const { return pd_; }

  /// An RDMA write, to its end.
  ibv_wc_status write(const void* source, std::uint32_t lkey, const void* target, std::uint32_t rkey,
                      std::uint32_t bytes) {
    return transfer(IBV_WR_RDMA_WRITE, source, lkey, target, rkey, bytes);
  }
  /// An RDMA operation of a peer on `remote`, to its end. An atomic one adds 1.
  ibv_wc_status transfer(ibv_wr_opcode operation, const void* local, std::uint32_t lkey, const void* remote,
                         std::uint32_t rkey, std::uint32_t bytes) {
    ibv_sge element{reinterpret_cast<std::uintptr_t>(local), bytes, lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &element;
    request.num_sge = 1;
    request.opcode = operation;
    request.send_flags = IBV_SEND_SIGNALED;
    if (operation == IBV_WR_ATOMIC_FETCH_AND_ADD)
      request.wr.atomic = {reinterpret_cast<std::uintptr_t>(remote), 1, 0, rkey};
    else
      request.wr.rdma = {reinterpret_cast<std::uintptr_t>(remote), rkey};
    if (ibv_post_send(ends_[0], &request, &bad) != 0) return IBV_WC_GENERAL_ERR;
    return completed();
  }

  /// A message from the first end to the second, which completes when both are posted.
  bool post_send(const void* source, std::uint32_t lkey, std::uint32_t bytes) {
    ibv_sge element{reinterpret_cast<std::uintptr_t>(source), bytes, lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &element;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    return ibv_post_send(ends_[0], &request, &bad) == 0;
  }
  bool post_receive(const void* target, std::uint32_t lkey, std::uint32_t bytes) {
    ibv_sge element{reinterpret_cast<std::uintptr_t>(target), bytes, lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.sg_list = &element;
    request.num_sge = 1;
    return ibv_post_recv(ends_[1], &request, &bad) == 0;
  }
  /// Whether the first completion and the second are good ones. A failure is reported by one end, or by both.
  bool message_arrives() { return completed() == IBV_WC_SUCCESS && completed() == IBV_WC_SUCCESS; }

  /// A memory window over a part of the region, which write() may reach by the window's key.
  ibv_wc_status bind(ibv_mw* window, ibv_mr* region, const void* address, std::size_t bytes) {
    ibv_mw_bind request{};
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_info = {region, reinterpret_cast<std::uintptr_t>(address), bytes,
                         IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    if (ibv_bind_mw(ends_[1], window, &request) != 0) return IBV_WC_GENERAL_ERR;
    return completed();
  }

 private:
  ibv_wc_status completed() {
    ibv_wc completion{};
    while (ibv_poll_cq(completions_, 1, &completion) == 0) {
    }
    return completion.status;
  }
  template <class T>
  static T* need(T* made) {
    if (made == nullptr) std::exit(99);
    return made;
  }
  static void need_done(int error) {
    if (error != 0) std::exit(98);
  }

  ibv_qp* make_end() {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, 4, 1, 1, 0};
    return need(ibv_create_qp(pd_, &attributes));
  }

  void connect(ibv_qp* end, const ibv_qp* other) {
    constexpr int kGid = 1;  // the IPv4 address; 0 is the link-local one
    ibv_gid gid{};
    need_done(ibv_query_gid(context_, 1, kGid, &gid));
    ibv_qp_attr to_init{};
    to_init.qp_state = IBV_QPS_INIT;
    to_init.port_num = 1;
    to_init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    need_done(
        ibv_modify_qp(end, &to_init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    ibv_qp_attr to_receive{};
    to_receive.qp_state = IBV_QPS_RTR;
    to_receive.path_mtu = IBV_MTU_1024;
    to_receive.dest_qp_num = other->qp_num;
    to_receive.max_dest_rd_atomic = 1;
    to_receive.min_rnr_timer = 12;
    to_receive.ah_attr.is_global = 1;
    to_receive.ah_attr.port_num = 1;
    to_receive.ah_attr.grh.dgid = gid;
    to_receive.ah_attr.grh.sgid_index = kGid;
    to_receive.ah_attr.grh.hop_limit = 1;
    need_done(ibv_modify_qp(end, &to_receive,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    ibv_qp_attr to_send{};
    to_send.qp_state = IBV_QPS_RTS;
    to_send.timeout = 14;
    to_send.retry_cnt = 7;
    to_send.rnr_retry = 7;
    to_send.max_rd_atomic = 1;
    need_done(ibv_modify_qp(end, &to_send,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
  }

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_qp* ends_[2] = {};
};

}  // namespace pinion
