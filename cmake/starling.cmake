# The one way to add a room: starling_module(name SOURCES … DEPS … TESTS … BENCHES … FUZZERS …).

find_program(STARLING_CCACHE ccache)
if(STARLING_CCACHE)
  # Paths of the tree are hashed relative to it, so every build folder and clone shares what one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  ${STARLING_CCACHE})
endif()
find_program(STARLING_MOLD mold)
if(STARLING_MOLD AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
if(STARLING_TESTS)
  find_package(GTest REQUIRED)
endif()
if(STARLING_BENCHES)
  find_package(benchmark REQUIRED)
endif()

add_compile_options(-Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers)
# The same bits on every machine: the compiler may not fuse a multiply and an add on its own.
add_compile_options(-ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports these falsely inside inlined library code (GCC bugs 105329, 105562).
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(STARLING_LIBFUZZER)
  # Coverage of all code, so that libFuzzer sees what an input reaches.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(STARLING_SANITIZE)
  add_compile_options(-fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${STARLING_SANITIZE})
  if(STARLING_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Adds the room in the current folder.
#
# SOURCES: its .cc files. DEPS: the rooms (starling_x) and libraries it uses. TESTS: x_test.cc files, linked to one
# program <name>_test. BENCHES: x_bench.cc files, one program <name>_bench. FUZZERS: x_fuzz.cc files, one program each.
# LABELS: of the test program; `threads` makes the thread-sanitizer run include it.
function(starling_module name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;TESTS;TEST_DEPS;BENCHES;BENCH_DEPS;FUZZERS;LABELS" ${ARGN})
  set(library starling_${name})
  if(ROOM_SOURCES)
    add_library(${library} STATIC ${ROOM_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${library} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${library} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${library} ${scope} ${ROOM_DEPS})
  # The thread sanitizer has nothing to say about tests without threads.
  if(STARLING_SANITIZE STREQUAL "thread" AND NOT "threads" IN_LIST ROOM_LABELS)
    unset(ROOM_TESTS)
    unset(ROOM_FUZZERS)
  endif()
  if(ROOM_TESTS AND STARLING_TESTS)
    add_executable(${name}_test ${ROOM_TESTS})
    target_link_libraries(${name}_test PRIVATE ${library} ${ROOM_TEST_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
    # A quarter of the time to compile a test goes to optimizing code that runs once.
    target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES LABELS "gtest;${ROOM_LABELS}" TIMEOUT 1200)
  endif()
  if(ROOM_BENCHES AND STARLING_BENCHES)
    add_executable(${name}_bench ${ROOM_BENCHES})
    target_link_libraries(${name}_bench PRIVATE ${library} ${ROOM_BENCH_DEPS} benchmark::benchmark)
  endif()
  if(STARLING_TESTS)
    foreach(fuzzer ${ROOM_FUZZERS})
      starling_fuzzer(${fuzzer} ${library})
    endforeach()
  endif()
endfunction()

# A fuzz target defines LLVMFuzzerTestOneInput. With clang and -DSTARLING_LIBFUZZER=ON libFuzzer drives it; otherwise
# tests/fuzz/driver.cc feeds it a million seeded mutations of its corpus as a test.
function(starling_fuzzer source library)
  get_filename_component(target ${source} NAME_WE)
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE ${library})
  if(STARLING_LIBFUZZER)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus.cc)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/driver.cc)
    add_test(NAME ${target} COMMAND ${target})
    set_tests_properties(${target} PROPERTIES LABELS "fuzz" TIMEOUT 1200)
  endif()
endfunction()
