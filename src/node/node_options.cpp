#include "node/node_options.h"

namespace pinion {

namespace {

constexpr Choice<PolicyKind> kPolicies[] = {{"sleeping", PolicyKind::sleeping},
                                            {"none-if-busy", PolicyKind::none_if_busy},
                                            {"aggressive", PolicyKind::aggressive},
                                            {"conservative", PolicyKind::conservative}};

}  // namespace

OptionTable<NodeOptions> node_options() {
  using O = NodeOptions;
  return {
      size_limit_option(
          &O::node_limit,
          {"node-limit",
           "upper bound on bytes registered at a time by all processes of the job on a node, shared by "
           "need; 0: none. Below libraries and in measured runs it works as limit does"}),
      choice_option(
          &O::policy,
          {"policy", "which processes of a node have a helper, and on which cores (retention helper)",
           Listing::advanced},
          kPolicies),
      count_option(&O::policy_every,
                   {"policy-every", "transfers after which the policy looks at the node's processes again",
                    Listing::advanced},
                   1),
  };
}

const char* to_string(PolicyKind kind) {
  for (const auto& choice : kPolicies)
    if (choice.value == kind) return choice.name;
  return "unknown";
}

}  // namespace pinion
