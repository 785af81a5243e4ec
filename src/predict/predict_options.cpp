#include "predict/predict_options.h"

namespace pinion {

OptionTable<PredictOptions> predict_options() {
  using O = PredictOptions;
  static const Choice<std::string> kPredictors[] = {
      {"adaptive", "adaptive"}, {"shortest", "shortest"}, {"periodicity", "periodicity"}};
  return {
      choice_option(&O::predictor,
                    {"predictor", "how the next use of a region is predicted (retention helper and observe)",
                     Listing::advanced},
                    kPredictors),
      count_option(
          &O::window,
          {"window", "previous communication points in a context signature, 0 to 8", Listing::advanced}, 0,
          8),
      count_option(&O::period_window,
                   {"period-window",
                    "communication points in a row that must repeat to form a period (predictor "
                    "periodicity), 1 to 128",
                    Listing::advanced},
                   1, 128),
      text_option(
          &O::profile,
          {"profile",
           "file with what predictor adaptive learnt in earlier runs, which this run updates; empty: none"}),
  };
}

}  // namespace pinion
