// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// All of Asio that is no template, compiled once and not in every file that waits.
#include <asio/impl/src.hpp>
