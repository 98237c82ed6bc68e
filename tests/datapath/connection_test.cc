// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The connection cases over shared memory and over a link that is no device.
#define SMC_TRANSPORTS DmbPair, LinkPair, NarrowLinkPair
#include "connection_cases.h"
