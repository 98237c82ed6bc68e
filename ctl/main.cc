// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// smcctl: looks at a running agent, and at captures.
#include <algorithm>
#include <iostream>
#include <stdexcept>

#include "ctl/commands.h"
#include "os/paths.h"
#include "smc_version.h"

int main(int argc, char** argv) {
    using namespace smc::ctl;
    CLI::App app{"Shows and controls a running smc-agent, and decodes SMC in packet captures", "smcctl"};
    app.footer(  // first, because subcommands take it over
        "Exit codes: 0 done; 1 the agent refuses, the capture is broken or the command has failed (health: any\n"
        "problem); 2 a mistake in the command line; 3 no agent of this version answers.");
    app.require_subcommand(1);
    app.fallthrough();
    Context context;
    context.socket = smc::kControlSocket;
    app.set_version_flag("-v,--version", std::string("smcctl ") + smc::kVersion);
    app.set_help_all_flag("--help-all", "Print this and every subcommand's options, and exit");
    app.add_option("--socket", context.socket, "The agent's control socket")->capture_default_str();
    app.add_flag("-j,--json", context.json, "Print JSON");
    app.add_option("-w,--watch", context.watch_s,
                   "For commands that show something: print it again every so many seconds, until Ctrl-C")
        ->check(CLI::Range(1U, 3600U));
    add_views(app, context);
    add_bypass(app, context);
    add_changes(app, context);
    add_health(app, context);
    add_live(app, context);
    add_decode(app, context);
    add_completion(app, context);
    const auto no_agent = [&context] {
        std::cerr << "Error: what answers at " << context.socket << " is no smc-agent of this version\n";
        return kNoAgent;
    };
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? kDone : kUsage;
    } catch (const nlohmann::json::exception&) {
        return no_agent();
    } catch (const std::logic_error&) {  // of std::stoul() and substr(), for texts of another form
        return no_agent();
    }
    std::cout.flush();
    if (!std::cout) {  // for instance a full disk; a pipe that its reader has closed ends smcctl by SIGPIPE before
        std::cerr << "Error: cannot write the output\n";
        return std::max<int>(context.exit, kRefused);
    }
    return context.exit;
}
