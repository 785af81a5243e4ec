// The subcommands of `papers`: each adds itself to the parser.
#pragma once

namespace CLI {
class App;
}

namespace pinion::cli {

void add_paper_simulate(CLI::App& app);
void add_firehose_study(CLI::App& app);

}  // namespace pinion::cli
