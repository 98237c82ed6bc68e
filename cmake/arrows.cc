// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Linked with one library and what it may depend on (SmcLibrary.cmake). Never run.
int main() {}
