# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# ccache, where it is installed: what was compiled once, in whatever clone, is not compiled again. For that the path of
# the clone (SMC_SOURCE_DIR) is no part of what ccache compares, but for the few sources that are told it.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${SMC_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  add_compile_options(-ffile-prefix-map=${SMC_SOURCE_DIR}=.)
endif()
