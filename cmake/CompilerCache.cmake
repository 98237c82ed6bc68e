# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# ccache, if it is installed: a source that was compiled once, in any clone, is not compiled again. Therefore ccache
# does not compare the path of the clone (SMC_SOURCE_DIR), except for the few sources that get it.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${SMC_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  add_compile_options(-ffile-prefix-map=${SMC_SOURCE_DIR}=.)
endif()
