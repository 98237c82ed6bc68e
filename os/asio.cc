// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of Asio that are no templates, compiled once and not in every file that uses Asio.
#include <asio/impl/src.hpp>
