#include "callsite/unwind.h"

#include <unwind.h>

#include <cstring>

namespace pinion {

// Asks the unwinder inside this library, which makes the walk here: its runtime may be led to the process's
// (unwinder.cpp).
extern "C" [[gnu::weak]] decltype(_Unwind_GetIPInfo) __real__Unwind_GetIPInfo;

namespace {

struct RuntimeUnwind {
  const EntryFrame& entry;
  CallFrames frames;
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* argument) {
  auto& unwind = *static_cast<RuntimeUnwind*>(argument);
  CallFrames& frames = unwind.frames;
  int interrupted = 0;
  const auto address_in = __real__Unwind_GetIPInfo != nullptr ? __real__Unwind_GetIPInfo : _Unwind_GetIPInfo;
  const Address address = address_in(context, &interrupted);
  if (frames.depth == 0) {
    // The runtime starts with our own frames; the entry frame is the first one wanted.
    if (_Unwind_GetCFA(context) != unwind.entry.stack_pointer) return _URC_NO_REASON;
    frames.return_addresses[frames.depth++] = unwind.entry.return_address;
    return _URC_NO_REASON;
  }
  if (interrupted || address == 0 || frames.depth == kMaxCallFrames) return _URC_NORMAL_STOP;
  frames.return_addresses[frames.depth++] = address;
  return _URC_NO_REASON;
}

}  // namespace

CallFrames unwind_with_runtime(const EntryFrame& entry) {
  RuntimeUnwind unwind{entry, {}};
  _Unwind_Backtrace(visit_frame, &unwind);
  // Code of ours that was built without tables would hide the entry frame; its return address is known
  // anyway.
  if (unwind.frames.depth == 0) unwind.frames.return_addresses[unwind.frames.depth++] = entry.return_address;
  return unwind.frames;
}

#if defined(__x86_64__)

// The search that the runtime itself uses; part of libgcc's stable interface (GCC_3.0) but missing from its
// headers.
extern "C" const void* _Unwind_Find_FDE(const void* address, void* bases);

namespace {

// The format is that of the DWARF standard's call frame information, with the differences of the Linux
// Standard Base's .eh_frame. Only three columns matter here: the CFA, rbp and the return address.
constexpr std::uint64_t kRbp = 6, kRsp = 7, kReturnAddress = 16;
constexpr std::uint8_t kExpressionRbpPlus = 0x70 + kRbp, kExpressionDereference = 0x06;

/// Reads the tables' encodings from a byte range; beyond its end, or at something unknown, it fails for good.
class Reader {
 public:
  Reader(const std::uint8_t* begin, const std::uint8_t* end) : at_(begin), end_(end) {}

  bool failed() const { return failed_; }
  bool more() const { return !failed_ && at_ < end_; }
  const std::uint8_t* position() const { return at_; }
  const std::uint8_t* end() const { return end_; }
  void fail() { failed_ = true; }

  void skip(std::uint64_t bytes) {
    if (bytes > static_cast<std::uint64_t>(end_ - at_)) {
      fail();
    } else {
      at_ += bytes;
    }
  }
  template <class T>
  T fixed() {
    T value{};
    const std::uint8_t* from = at_;
    skip(sizeof value);
    if (!failed_) std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    fail();
    return 0;
  }
  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64;) {
      const auto byte = fixed<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      shift += 7;
      if (byte & 0x80) continue;
      if ((byte & 0x40) && shift < 64) value |= ~std::uint64_t{0} << shift;
      return static_cast<std::int64_t>(value);
    }
    fail();
    return 0;
  }
  /// Skips a pointer in one of the encodings of DW_EH_PE_*.
  void skip_pointer(std::uint8_t encoding) {
    constexpr std::uint8_t kAligned = 0x50, kSizeMask = 0x07;
    if ((encoding & 0x70) == kAligned) return fail();
    switch (encoding & kSizeMask) {
      case 0:
        return skip(sizeof(Address));
      case 2:
        return skip(2);
      case 3:
        return skip(4);
      case 4:
        return skip(8);
      default:
        return fail();
    }
  }
  /// A block whose length comes before it.
  Reader block() {
    const std::uint64_t length = uleb();
    const std::uint8_t* from = at_;
    skip(length);
    return failed_ ? Reader(at_, at_) : Reader(from, at_);
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

/// One record of .eh_frame, positioned behind its length.
Reader record_at(const std::uint8_t* at) {
  std::uint32_t length;
  std::memcpy(&length, at, sizeof length);
  constexpr std::uint32_t kExtendedLength = 0xffffffff;
  Reader record(at + sizeof length, at + sizeof length + (length == kExtendedLength ? 0 : length));
  if (length == kExtendedLength) record.fail();
  return record;
}

/// The common part of the functions of one compilation (common information entry).
struct CommonEntry {
  std::uint64_t code_alignment = 1;
  std::int64_t data_alignment = 1;
  std::uint8_t pointer_encoding = 0;
  bool has_augmentation_data = false;
  bool signal_frame = false;
};

/// Reads the entry up to its initial instructions.
CommonEntry read_common_entry(Reader& record) {
  CommonEntry entry;
  record.skip(sizeof(std::uint32_t));  // the mark of a common entry
  const auto version = record.fixed<std::uint8_t>();
  const char* augmentation = reinterpret_cast<const char*>(record.position());
  while (record.fixed<std::uint8_t>() != 0) {
  }
  entry.code_alignment = record.uleb();
  entry.data_alignment = record.sleb();
  const std::uint64_t return_column = version == 1 ? record.fixed<std::uint8_t>() : record.uleb();
  if (record.failed() || (version != 1 && version != 3) || return_column != kReturnAddress) {
    record.fail();
    return entry;
  }
  if (*augmentation == '\0') return entry;
  if (*augmentation != 'z') {
    record.fail();
    return entry;
  }
  entry.has_augmentation_data = true;
  Reader data = record.block();
  for (const char* letter = augmentation + 1; *letter != '\0'; ++letter) {
    switch (*letter) {
      case 'R':
        entry.pointer_encoding = data.fixed<std::uint8_t>();
        break;
      case 'P':
        data.skip_pointer(data.fixed<std::uint8_t>());
        break;
      case 'L':
        data.skip(1);
        break;
      case 'S':
        entry.signal_frame = true;
        break;
      default:
        data.fail();
    }
  }
  if (data.failed()) record.fail();
  return entry;
}

/// One row of the table: the rules that hold at a code address.
struct Row {
  enum class Saved : std::uint8_t { no, at_cfa, at_frame_pointer, undefined, elsewhere };
  struct Column {
    Saved saved = Saved::no;
    std::int64_t offset = 0;
  };

  FrameRule::Cfa cfa = FrameRule::Cfa::none;
  std::int64_t cfa_offset = 0;
  Column rbp;
  Column return_address;

  /// The column of a register, null for the many that are irrelevant here.
  Column* column(std::uint64_t reg) {
    return reg == kRbp ? &rbp : reg == kReturnAddress ? &return_address : nullptr;
  }
  void set(std::uint64_t reg, Saved saved, std::int64_t offset = 0) {
    if (Column* c = column(reg)) *c = {saved, offset};
  }
  void set_cfa_register(std::uint64_t reg) {
    cfa = reg == kRsp   ? FrameRule::Cfa::stack_pointer
          : reg == kRbp ? FrameRule::Cfa::frame_pointer
                        : FrameRule::Cfa::none;
  }
  /// Realigned stacks keep the CFA at a fixed place below rbp: breg6(offset), deref.
  void set_cfa_expression(Reader expression) {
    const bool from_rbp = expression.fixed<std::uint8_t>() == kExpressionRbpPlus;
    cfa_offset = expression.sleb();
    const bool stored = expression.fixed<std::uint8_t>() == kExpressionDereference;
    const bool known = from_rbp && stored && !expression.failed() && !expression.more();
    cfa = known ? FrameRule::Cfa::stored_at_frame_pointer : FrameRule::Cfa::none;
  }
  /// … and the caller's rbp at rbp itself: breg6(offset).
  void set_expression(std::uint64_t reg, Reader expression) {
    const bool from_rbp = expression.fixed<std::uint8_t>() == kExpressionRbpPlus;
    const std::int64_t offset = expression.sleb();
    const bool known = from_rbp && !expression.failed() && !expression.more();
    set(reg, known ? Saved::at_frame_pointer : Saved::elsewhere, offset);
  }
};

/// Runs call frame instructions from `location` up to the row that holds at `address`.
class RowProgram {
 public:
  /// `initial` is the row that DW_CFA_restore goes back to.
  RowProgram(Reader& code, const CommonEntry& entry, Row& row, const Row& initial)
      : code_(code), entry_(entry), row_(row), initial_(initial) {}

  void run(Address location, Address address) {
    location_ = location;
    while (code_.more() && location_ <= address) step(code_.fixed<std::uint8_t>());
  }

 private:
  using Saved = Row::Saved;

  void step(std::uint8_t opcode) {
    const std::uint8_t operand = opcode & 0x3f;
    switch (opcode & 0xc0) {
      case 0x40:  // DW_CFA_advance_loc
        return advance(operand);
      case 0x80:  // DW_CFA_offset
        return row_.set(operand, Saved::at_cfa, factored(code_.uleb()));
      case 0xc0:  // DW_CFA_restore
        return restore(operand);
      default:
        break;
    }
    if (opcode <= 0x04) return move(opcode);
    if (opcode >= 0x0c && opcode != 0x10 && opcode != 0x11 && opcode <= 0x13) return set_cfa(opcode);
    set_register(opcode);
  }
  void move(std::uint8_t opcode) {
    switch (opcode) {
      case 0x00:  // DW_CFA_nop
        return;
      case 0x02:  // DW_CFA_advance_loc1
        return advance(code_.fixed<std::uint8_t>());
      case 0x03:  // DW_CFA_advance_loc2
        return advance(code_.fixed<std::uint16_t>());
      case 0x04:  // DW_CFA_advance_loc4
        return advance(code_.fixed<std::uint32_t>());
      default:  // DW_CFA_set_loc, which compilers for this processor never emit
        return code_.fail();
    }
  }
  void set_cfa(std::uint8_t opcode) {
    switch (opcode) {
      case 0x0c:  // DW_CFA_def_cfa
        row_.set_cfa_register(code_.uleb());
        row_.cfa_offset = static_cast<std::int64_t>(code_.uleb());
        return;
      case 0x0d:  // DW_CFA_def_cfa_register
        return row_.set_cfa_register(code_.uleb());
      case 0x0e:  // DW_CFA_def_cfa_offset
        row_.cfa_offset = static_cast<std::int64_t>(code_.uleb());
        return;
      case 0x0f:  // DW_CFA_def_cfa_expression
        return row_.set_cfa_expression(code_.block());
      case 0x12:  // DW_CFA_def_cfa_sf
        row_.set_cfa_register(code_.uleb());
        row_.cfa_offset = factored(code_.sleb());
        return;
      default:  // 0x13, DW_CFA_def_cfa_offset_sf
        row_.cfa_offset = factored(code_.sleb());
        return;
    }
  }
  /// The rules of a register, and the rows that are remembered.
  void set_register(std::uint8_t opcode) {
    switch (opcode) {
      case 0x0a:  // DW_CFA_remember_state
        if (remembered_count_ == kMaxRemembered) return code_.fail();
        remembered_[remembered_count_++] = row_;
        return;
      case 0x0b:  // DW_CFA_restore_state
        if (remembered_count_ == 0) return code_.fail();
        row_ = remembered_[--remembered_count_];
        return;
      case 0x2e:  // DW_CFA_GNU_args_size
        code_.uleb();
        return;
      default:
        break;
    }
    const std::uint64_t reg = code_.uleb();
    switch (opcode) {
      case 0x05:  // DW_CFA_offset_extended
        return row_.set(reg, Saved::at_cfa, factored(code_.uleb()));
      case 0x06:  // DW_CFA_restore_extended
        return restore(reg);
      case 0x07:  // DW_CFA_undefined
        return row_.set(reg, Saved::undefined);
      case 0x08:  // DW_CFA_same_value
        return row_.set(reg, Saved::no);
      case 0x10:  // DW_CFA_expression
        return row_.set_expression(reg, code_.block());
      case 0x11:  // DW_CFA_offset_extended_sf
        return row_.set(reg, Saved::at_cfa, factored(code_.sleb()));
      case 0x09:  // DW_CFA_register
      case 0x14:  // DW_CFA_val_offset
      case 0x15:  // DW_CFA_val_offset_sf
        row_.set(reg, Saved::elsewhere);
        code_.uleb();
        return;
      case 0x16:  // DW_CFA_val_expression
        row_.set(reg, Saved::elsewhere);
        code_.block();
        return;
      default:  // codes that compilers for this processor never emit
        return code_.fail();
    }
  }

  void advance(std::uint64_t delta) { location_ += delta * entry_.code_alignment; }
  std::int64_t factored(std::uint64_t offset) const {
    return static_cast<std::int64_t>(offset) * entry_.data_alignment;
  }
  std::int64_t factored(std::int64_t offset) const { return offset * entry_.data_alignment; }
  void restore(std::uint64_t reg) {
    if (Row::Column* c = row_.column(reg)) *c = reg == kRbp ? initial_.rbp : initial_.return_address;
  }

  static constexpr std::size_t kMaxRemembered = 8;

  Reader& code_;
  const CommonEntry& entry_;
  Row& row_;
  const Row& initial_;
  Address location_ = 0;
  Row remembered_[kMaxRemembered];
  std::size_t remembered_count_ = 0;
};

FrameRule rule_of(const Row& row) {
  const auto fits = [](std::int64_t v) { return v == static_cast<std::int32_t>(v); };
  FrameRule rule{};
  // Undefined means outermost; saved anywhere but at −8 is hand-written code that is not a call.
  if (row.return_address.saved != Row::Saved::at_cfa || row.return_address.offset != -8) return rule;
  if (!fits(row.cfa_offset) || !fits(row.rbp.offset)) return rule;
  rule.cfa = row.cfa;
  rule.cfa_offset = static_cast<std::int32_t>(row.cfa_offset);
  rule.frame_pointer_offset = static_cast<std::int32_t>(row.rbp.offset);
  switch (row.rbp.saved) {
    case Row::Saved::no:
      rule.frame_pointer = FrameRule::FramePointer::unchanged;
      break;
    case Row::Saved::at_cfa:
      rule.frame_pointer = FrameRule::FramePointer::stored_at_cfa;
      break;
    case Row::Saved::at_frame_pointer:
      rule.frame_pointer = FrameRule::FramePointer::stored_at_frame_pointer;
      break;
    case Row::Saved::undefined:
    case Row::Saved::elsewhere:
      rule.frame_pointer = FrameRule::FramePointer::lost;
      break;
  }
  return rule;
}

}  // namespace

FrameRule find_frame_rule(Address return_address) {
  // A call may be the last instruction of its function: the table wanted is the one of the call, not of the
  // return.
  const Address call = return_address - 1;
  struct {
    void* text;
    void* data;
    void* function;
  } bases = {};
  const auto* table =
      static_cast<const std::uint8_t*>(_Unwind_Find_FDE(reinterpret_cast<void*>(call), &bases));
  if (table == nullptr) return {};

  Reader function = record_at(table);
  const std::uint8_t* const common_distance_at = function.position();
  const auto common_distance = function.fixed<std::uint32_t>();
  Reader common = record_at(common_distance_at - common_distance);
  const CommonEntry entry = read_common_entry(common);
  function.skip_pointer(entry.pointer_encoding);  // begin, which the search has returned decoded
  function.skip_pointer(entry.pointer_encoding);  // length
  if (entry.has_augmentation_data) function.block();
  if (common.failed() || function.failed() || entry.signal_frame) return {};

  Row row;
  RowProgram(common, entry, row, Row{}).run(0, 0);
  const Row initial = row;
  RowProgram(function, entry, row, initial).run(reinterpret_cast<Address>(bases.function), call);
  if (common.failed() || function.failed()) return {};
  return rule_of(row);
}

#endif

}  // namespace pinion
