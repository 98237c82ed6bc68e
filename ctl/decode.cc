// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ctl/decode.h"

#include "ctl/commands.h"

#include <cerrno>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <system_error>

#include "ctl/capture/capture_file.h"
#include "ctl/capture/dissector.h"
#include "ctl/capture/summary.h"
#include "ctl/describe_print.h"

namespace smc::ctl {

namespace {

using nlohmann::ordered_json;

// The longest line of --hex; messages end at 8192 bytes.
constexpr std::size_t kLongestLine = std::size_t{64} * 1024;

std::string time_text(std::int64_t time_us) {
    const std::time_t seconds = time_us / 1'000'000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char buffer[48];
    const std::size_t n = std::strftime(buffer, sizeof buffer, "%FT%T", &parts);
    std::snprintf(buffer + n, sizeof buffer - n, ".%06dZ", static_cast<int>(time_us % 1'000'000));
    return buffer;
}

std::string dump(const ordered_json& line) {
    return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json version(const Description& m) {
    return m.version != 0 ? ordered_json(m.version) : ordered_json(nullptr);  // not known, or there is none
}

void print(std::ostream& out, const capture::Event& event, bool json) {
    const Description& m = event.message;
    if (!json) {
        out << "frame " << event.frame << "  " << time_text(event.time_us) << "  " << event.from << " > " << event.to
            << "\n"
            << "  " << title(m) << "\n";
        print_fields(out, m.fields, 4);
        out << "\n";
        return;
    }
    ordered_json line{{"frame", event.frame},  {"time", static_cast<double>(event.time_us) / 1e6},
                      {"from", event.from},    {"to", event.to},
                      {"layer", m.layer},      {"type", m.type},
                      {"version", version(m)}, {"fields", to_json(m.fields)}};
    if (m.fault) {
        line["fault"] = to_json(*m.fault);
    }
    out << dump(line);
}

// The error if the link type of every frame is unknown; empty: at least one is known.
std::string nothing_known(const capture::Dissector& dissector, std::uint64_t frames) {
    std::uint64_t skipped = 0;
    std::string names;
    for (const auto& [link_type, count] : dissector.skipped()) {
        skipped += count;
        names += (names.empty() ? "" : ", ") + capture::link_type_text(link_type);
    }
    return skipped == 0 || skipped != frames
               ? ""
               : "link layer " + names + " is not one of Ethernet, Linux cooked, raw IP, loopback";
}

int decode_capture(const DecodeOptions& options, std::ostream& out, std::ostream& error) {
    std::FILE* file = options.file == "-" ? ::fdopen(0, "rb") : std::fopen(options.file.c_str(), "rb");
    const std::string name = options.file == "-" ? "standard input" : options.file;
    if (file == nullptr) {
        error << "Error: " << name << ": " << std::generic_category().message(errno) << "\n";
        return 1;
    }
    capture::Dissector dissector(
        [&](const capture::Event& event) {
            if (!options.summary) {
                print(out, event, options.json);
            }
        },
        options.rdma);
    std::uint64_t frames = 0;
    const auto broken = capture::read_capture(file, [&](const capture::Frame& frame) {
        frames = frame.number;
        dissector.add(frame);
    });
    if (const auto nothing = nothing_known(dissector, frames); !nothing.empty()) {
        error << "Error: " << name << ": " << nothing << "\n";
        return 1;
    }
    if (broken) {
        out.flush();
        error << "Error: " << name << ": " << *broken << " (" << frames << " frames were read)\n";
    }
    if (frames != 0 || !broken) {
        if (options.summary && options.json) {
            capture::summary_json(dissector, [&](const ordered_json& line) { out << dump(line); });
        } else if (options.summary) {
            capture::print_summary(out, dissector);
        } else {
            capture::print_counters(error, dissector, false);
        }
    }
    return broken ? 1 : 0;
}

// Reads a line without its end; false at the end of the input. A line longer than `longest` is cut, and `whole` is
// false.
bool read_line(std::istream& in, std::string& line, std::size_t longest, bool& whole) {
    line.clear();
    whole = true;
    int c = in.get();
    if (c == std::char_traits<char>::eof()) {
        return false;
    }
    for (; c != '\n' && c != std::char_traits<char>::eof(); c = in.get()) {
        whole = whole && line.size() < longest;
        if (whole) {
            line += static_cast<char>(c);
        }
    }
    return true;
}

// Hexadecimal digits with blanks, colons or "0x" between them; nullopt for anything else.
std::optional<std::vector<std::uint8_t>> parse_hex(const std::string& line) {
    std::vector<std::uint8_t> bytes;
    int pending = -1;
    for (std::size_t i = 0; i < line.size(); i++) {
        const char c = line[i];
        const char* digits = "0123456789abcdef";
        const char* found = std::strchr(digits, c | 0x20);
        if (pending == 0 && (c | 0x20) == 'x' && i + 1 < line.size()) {
            pending = -1;
        } else if (c != '\0' && found != nullptr && (std::isxdigit(static_cast<unsigned char>(c)) != 0)) {
            const int digit = static_cast<int>(found - digits);
            if (pending >= 0) {
                bytes.push_back(static_cast<std::uint8_t>(pending << 4 | digit));
                pending = -1;
            } else {
                pending = digit;
            }
        } else if ((c != ' ' && c != '\t' && c != ':' && c != '\r') || pending >= 0) {
            return std::nullopt;
        }
    }
    return pending < 0 ? std::optional(bytes) : std::nullopt;
}

int decode_hex(const DecodeOptions& options, std::ostream& out, std::ostream& error) {
    // Not std::cin, which takes a read error for the end of the input.
    const std::string name = options.file == "-" ? "standard input" : options.file;
    std::ifstream in(options.file == "-" ? "/dev/stdin" : options.file);
    if (!in) {
        error << "Error: " << name << ": " << std::generic_category().message(errno) << "\n";
        return 1;
    }
    int status = 0;
    bool whole = true;
    std::string line;
    for (std::uint64_t number = 1; read_line(in, line, kLongestLine, whole); number++) {
        const auto bytes = whole ? parse_hex(line) : std::nullopt;
        if (!bytes) {
            out.flush();
            error << "Error: line " << number << (whole ? " is not hexadecimal" : " is longer than 65536 characters")
                  << "\n";
            status = 1;
            continue;
        }
        if (bytes->empty()) {
            continue;
        }
        const Description message = describe_any(*bytes);
        if (options.json) {
            ordered_json object{{"line", number},
                                {"layer", message.layer},
                                {"type", message.type},
                                {"version", version(message)},
                                {"fields", to_json(message.fields)}};
            if (message.fault) {
                object["fault"] = to_json(*message.fault);
            }
            out << dump(object);
        } else {
            out << title(message) << "\n";
            print_fields(out, message.fields, 2);
        }
        status = message.fault ? 1 : status;
    }
    if (in.bad()) {
        error << "Error: cannot read " << name << "\n";
        status = 1;
    }
    return status;
}

}  // namespace

int decode(const DecodeOptions& options, std::ostream& out, std::ostream& error) {
    return options.hex ? decode_hex(options, out, error) : decode_capture(options, out, error);
}

void add_decode(CLI::App& app, Context& context) {
    auto* command = app.add_subcommand(
        "decode", "SMC messages and TCP option 254 in a capture, as text or with --json; needs no agent");
    const auto options = std::make_shared<DecodeOptions>();
    command->add_option("FILE", options->file, "pcap or pcapng, also compressed by gzip; - is standard input")
        ->capture_default_str();
    auto* hex = command->add_flag("--hex", options->hex, "FILE has messages as bare hexadecimal digits, one per line");
    auto* summary =
        command->add_flag("--summary", options->summary, "The history of each connection instead of its messages")
            ->excludes(hex);
    command->add_flag("--rdma", options->rdma, "RDMA writes and acknowledgements of SMC's queue pairs, too")
        ->excludes(hex)
        ->excludes(summary);
    command->callback([&context, options] {
        options->json = context.json;
        context.exit = decode(*options, std::cout, std::cerr);
    });
}

}  // namespace smc::ctl
