# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# smc_library(NAME SOURCES ... [DEPENDS ...] [PRIVATE_DEPENDS ...])
#
# A folder as a static library. DEPENDS are the only arrows that may leave it: a program with nothing but this library,
# whole, and those is linked in every build with tests, so that a symbol from anywhere else fails it.
function(smc_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${name} PUBLIC smc_options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  if(SMC_SANITIZE OR NOT SMC_TESTS)
    return()
  endif()
  add_executable(${name}_arrows ${PROJECT_SOURCE_DIR}/cmake/arrows.cc)
  target_link_libraries(${name}_arrows PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${name}>")
  set_target_properties(${name}_arrows PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/arrows)
endfunction()
