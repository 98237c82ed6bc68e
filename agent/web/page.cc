// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "agent/web/page.h"

#include <arpa/inet.h>
#include <sys/utsname.h>

#include <strings.h>

#ifndef SMC_PAGE  // defaults for tools that only parse this file
#define SMC_PAGE "agent/web/page"
#define SMC_PAGE_CHART SMC_PAGE "/page.js"
#endif

// The assembler reads the files; the build defines the macros that name them.
// NOLINTNEXTLINE(bugprone-macro-parentheses): the assembler needs the bare name
#define SMC_EMBED(name, path)                                                                    \
    asm(".pushsection .rodata\n.global smc_page_" #name "\nsmc_page_" #name ":\n.incbin \"" path \
        "\"\n.global smc_page_" #name "_end\nsmc_page_" #name "_end:\n.byte 0\n.popsection\n");  \
    extern "C" const char smc_page_##name[], smc_page_##name##_end[]

SMC_EMBED(html, SMC_PAGE "/index.html");
SMC_EMBED(css, SMC_PAGE "/page.css");
SMC_EMBED(js, SMC_PAGE "/page.js");
SMC_EMBED(chart, SMC_PAGE_CHART);

namespace smc {

bool is_answered_host(const std::string& host) {
    in6_addr address{};
    utsname node{};
    const bool is_address = ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                            ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &address) == 1;
    return host.empty() || is_address || ::strcasecmp(host.c_str(), "localhost") == 0 ||
           (::uname(&node) == 0 && ::strcasecmp(host.c_str(), node.nodename) == 0);
}

std::optional<WebServer::Answer> page_file(const std::string& path) {
    struct File {
        const char *path, *type, *begin, *end;
    };
    static constexpr const char* kScript = "text/javascript; charset=utf-8";
    static const File files[] = {{"/", "text/html; charset=utf-8", smc_page_html, smc_page_html_end},
                                 {"/page.css", "text/css; charset=utf-8", smc_page_css, smc_page_css_end},
                                 {"/page.js", kScript, smc_page_js, smc_page_js_end},
                                 {"/chart.js", kScript, smc_page_chart, smc_page_chart_end}};
    for (const File& file : files) {
        if (path == file.path) {
            return WebServer::Answer{.type = file.type, .body = std::string(file.begin, file.end)};
        }
    }
    return std::nullopt;
}

}  // namespace smc
