// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `smcctl completion bash`: made from the subcommands themselves, so that it knows each of them.
#include <iostream>

#include "ctl/commands.h"

namespace smc::ctl {

namespace {

std::string options_of(const CLI::App& app) {
    std::string words;
    for (const CLI::Option* option : app.get_options()) {
        for (const auto& name : option->get_lnames()) {
            words += "--" + name + " ";
        }
        for (const auto& name : option->get_snames()) {
            words += "-" + name + " ";
        }
    }
    return words;
}

std::string subcommands_of(const CLI::App& app) {
    std::string words;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
        words += one->get_name() + " ";
    }
    return words;
}

// The values that positional arguments allow: "show reset" from the type name "{show,reset}".
std::string choices_of(const CLI::App& app) {
    std::string words;
    for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
        const std::string type = option->get_type_name();
        const auto open = type.find('{'), close = type.find('}');
        if (open != std::string::npos && close != std::string::npos) {
            std::string list = type.substr(open + 1, close - open - 1);
            std::ranges::replace(list, ',', ' ');
            words += list + " ";
        }
    }
    return words;
}

void print_bash(std::ostream& out, const CLI::App& app) {
    out << "# bash completion of smcctl\n"
           "_smcctl() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} command= i\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n"
           "            --socket|-w|--watch) i=$((i + 1)) ;;\n"
           "            -*) ;;\n"
           "            *) command=${COMP_WORDS[i]}; break ;;\n"
           "        esac\n"
           "    done\n"
           "    local words=\""
        << options_of(app)
        << "\"\n"
           "    case $command in\n"
           "        '') words+=\""
        << subcommands_of(app) << "\" ;;\n";
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
        out << "        " << one->get_name() << ") words+=\"" << subcommands_of(*one) << choices_of(*one)
            << options_of(*one) << "\"";
        if (one->get_name() == "decode") {
            out << "; COMPREPLY=($(compgen -f -- \"$word\"))";
        }
        out << " ;;\n";
    }
    out << "    esac\n"
           "    COMPREPLY+=($(compgen -W \"$words\" -- \"$word\"))\n"
           "}\n"
           "complete -F _smcctl smcctl\n";
}

}  // namespace

void add_completion(CLI::App& app, Context& context) {
    auto* completion = app.add_subcommand("completion", "Print a completion script for the shell bash");
    completion->add_option("SHELL", "bash")->check(CLI::IsMember({"bash"}))->default_str("bash");
    completion->callback([&app, &context] {
        print_bash(std::cout, app);
        context.exit = kDone;
    });
}

}  // namespace smc::ctl
