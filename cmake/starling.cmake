# The one way to add a room: starling_module(name SOURCES … DEPS … TESTS … BENCHES … FUZZERS …).

find_program(STARLING_CCACHE ccache)
if(STARLING_CCACHE)
  # Paths of the tree are hashed relative to it, so every build folder and clone shares what one has compiled.
  # The sloppiness is what ccache asks for with precompiled headers; no file here uses __TIME__.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
                                  ${STARLING_CCACHE})
endif()
find_program(STARLING_MOLD mold)
if(STARLING_MOLD AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  add_link_options(-fuse-ld=mold)
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
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

# One choice for libraries and programs, whatever they link, so that they share precompiled headers.
add_compile_options(-fPIC -pthread)
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
# Highway compiles for plain x86-64, AVX2 and AVX3. What is left out gains little over its neighbour: SSSE3 and SSE4 are of processors
# before 2013, and AVX3_DL has nothing more for floats than AVX3. Sanitizer builds, where each costs a minute, have the plain one alone:
# all take the same blocks of 16 lanes from the same memory.
set(STARLING_VECTORS_OUT "HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL")
if(STARLING_SANITIZE)
  string(APPEND STARLING_VECTORS_OUT "|HWY_AVX3|HWY_AVX2")
endif()
add_compile_definitions("HWY_DISABLED_TARGETS=(${STARLING_VECTORS_OUT})")

# A quarter of the time to compile a test goes to optimizing code that runs once.
set(STARLING_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(STARLING_SANITIZE)
  set(STARLING_TEST_OPTIONS -O0)
endif()

# Parsing the standard library, Abseil and fmt was more than a quarter of every compile, the generated messages another
# one. Each set is parsed once per build folder. Lint and fuzz builds do without.
set(STARLING_PRECOMPILED_std
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex> <optional>
  <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <vector> <absl/status/statusor.h> <fmt/format.h>)
set(STARLING_PRECOMPILED_messages
  <starling/v1/hub.pb.h> <starling/v1/peer.pb.h> <starling/v1/ps.pb.h> <starling/v1/scheduler.pb.h>)
set(STARLING_PRECOMPILED_torch <torch/types.h>)
set(STARLING_PRECOMPILED_tests <gmock/gmock.h> <gtest/gtest.h>)

# Compiles the files of `target` that go together as one, up to STARLING_UNIT_KB of text: a full build takes half the time, and a
# touched file its unit's.
function(starling_unite target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  list(FILTER sources INCLUDE REGEX "^[^/].*[.]cc$")
  list(TRANSFORM sources PREPEND ${folder}/)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/units.py ${STARLING_UNIT_KB} ${sources}
                  OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  # Lines become elements, and the files in them lists again.
  string(REPLACE ";" "|" lines "${lines}")
  string(REPLACE "\n" ";" lines "${lines}")
  # A file of two targets goes with the files of the one that comes last, in both; hence the target's name.
  set(number 0)
  foreach(line IN LISTS lines)
    string(REPLACE "|" ";" unit "${line}")
    set_source_files_properties(${unit} PROPERTIES UNITY_GROUP ${target}_${number})
    math(EXPR number "${number} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes what such a file includes for a header, in which unnamed namespaces would be a mistake.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# Sets `out` to whether what is compiled with the `property` (LINK_LIBRARIES, of a user INTERFACE_LINK_LIBRARIES) of
# `target` sees `library`.
function(starling_sees target property library out)
  set(${out} FALSE PARENT_SCOPE)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(names ${target} ${property})
  foreach(name ${names})
    set(reached FALSE)
    if(NOT name STREQUAL library AND name MATCHES "^(starling|cluster|sim)_")
      starling_sees(${name} INTERFACE_LINK_LIBRARIES ${library} reached)
    endif()
    if(reached OR name STREQUAL library)
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Compiles `target`, which knows its libraries by now, with the precompiled headers that fit it and, where it links the
# tests' library, as tests are compiled.
function(starling_precompile target)
  set(sets std)
  set(libraries absl::statusor fmt::fmt)
  starling_sees(${target} LINK_LIBRARIES starling_proto has_messages)
  if(has_messages)
    list(APPEND sets messages)
    list(APPEND libraries starling_proto)
  endif()
  starling_sees(${target} LINK_LIBRARIES starling_torch has_torch)
  if(has_torch)
    list(APPEND sets torch)
    list(APPEND libraries starling_torch)
  endif()
  starling_sees(${target} LINK_LIBRARIES GTest::gtest has_tests)
  if(has_tests)
    list(APPEND sets tests)
    list(APPEND libraries GTest::gtest GTest::gmock)
  endif()
  list(JOIN sets _ suffix)
  set(host starling_precompiled_${suffix})
  if(NOT TARGET ${host})
    # Written once: what is written anew at each configuration is compiled anew.
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/${suffix}.cc CONTENT "")
    add_library(${host} OBJECT ${CMAKE_BINARY_DIR}/precompiled/${suffix}.cc)
    target_link_libraries(${host} PRIVATE ${libraries})
    foreach(part ${sets})
      target_precompile_headers(${host} PRIVATE ${STARLING_PRECOMPILED_${part}})
    endforeach()
    if(has_tests)
      target_compile_options(${host} PRIVATE ${STARLING_TEST_OPTIONS})
    endif()
  endif()
  # A header that was compiled with other options than its user crashes g++ 12.
  if(has_tests)
    target_compile_options(${target} PRIVATE ${STARLING_TEST_OPTIONS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${host})
  if(STARLING_UNIT_KB GREATER 0)
    starling_unite(${target})
  endif()
endfunction()

# Compiles `target`, whose code protoc wrote, without warnings and without the sanitizer of undefined behaviour: not ours to check, and
# half of the time to compile it.
function(starling_generated target)
  target_compile_options(${target} PRIVATE -w)
  if(STARLING_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# Adds starling_<name>_records: the messages of `proto`, which only the room in the current folder stores or reads, and which are
# therefore not among the contracts. DEPS: what they are built on, starling_proto where they import a contract.
function(starling_records name proto)
  cmake_parse_arguments(RECORDS "" "" "DEPS" ${ARGN})
  find_package(Protobuf REQUIRED)
  set(out ${CMAKE_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${out})
  get_filename_component(stem ${proto} NAME_WE)
  set(files ${out}/${name}/${stem}.pb.cc ${out}/${name}/${stem}.pb.h)
  file(GLOB contracts ${CMAKE_SOURCE_DIR}/proto/starling/v1/*.proto)
  add_custom_command(
    OUTPUT ${files}
    COMMAND protobuf::protoc -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/proto --cpp_out=${out} ${CMAKE_CURRENT_SOURCE_DIR}/${proto}
    DEPENDS ${proto} ${contracts} VERBATIM)
  set(library starling_${name}_records)
  add_library(${library} STATIC EXCLUDE_FROM_ALL ${files})
  target_include_directories(${library} SYSTEM PUBLIC ${out})
  target_link_libraries(${library} PUBLIC protobuf::libprotobuf ${RECORDS_DEPS})
  starling_generated(${library})
endfunction()

# Adds the room in the current folder.
#
# SOURCES: its .cc files. DEPS: the rooms (starling_x) and libraries it uses, INSIDE: those that its headers do not show.
# TESTS: x_test.cc files, linked to one program <name>_test. BENCHES: x_bench.cc files, one program <name>_bench.
# FUZZERS: x_fuzz.cc files, one program each. LABELS: of the test program; `threads` makes the thread-sanitizer run
# include it.
function(starling_module name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;INSIDE;TESTS;TEST_DEPS;BENCHES;BENCH_DEPS;FUZZERS;LABELS" ${ARGN})
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
  if(ROOM_SOURCES)
    target_link_libraries(${library} PRIVATE ${ROOM_INSIDE})
    starling_precompile(${library})
  endif()
  # The thread sanitizer has nothing to say about what has no threads.
  if(STARLING_SANITIZE STREQUAL "thread")
    unset(ROOM_FUZZERS)
    if(NOT "threads" IN_LIST ROOM_LABELS)
      unset(ROOM_TESTS)
    endif()
  endif()
  if(ROOM_TESTS AND STARLING_TESTS)
    add_executable(${name}_test ${ROOM_TESTS})
    target_link_libraries(${name}_test PRIVATE ${library} ${ROOM_TEST_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
    starling_precompile(${name}_test)
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES LABELS "gtest;${ROOM_LABELS}" TIMEOUT 1200)
  endif()
  if(ROOM_BENCHES AND STARLING_BENCHES)
    add_executable(${name}_bench ${ROOM_BENCHES})
    target_link_libraries(${name}_bench PRIVATE ${library} ${ROOM_BENCH_DEPS} benchmark::benchmark)
    starling_precompile(${name}_bench)
  endif()
  if(STARLING_TESTS)
    foreach(fuzzer ${ROOM_FUZZERS})
      starling_fuzzer(${fuzzer} ${library})
    endforeach()
  endif()
endfunction()

# A fuzz target defines fuzz_decoders() of tests/fuzz/fuzz.h. With clang and -DSTARLING_LIBFUZZER=ON libFuzzer drives it;
# otherwise tests/fuzz/driver.cc feeds each decoder a million seeded mutations of its seeds as a test.
function(starling_fuzzer source library)
  get_filename_component(target ${source} NAME_WE)
  add_executable(${target} ${source})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${library})
  starling_precompile(${target})
  if(STARLING_LIBFUZZER)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus.cc)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/driver.cc)
    add_test(NAME ${target} COMMAND ${target})
    set_tests_properties(${target} PROPERTIES LABELS "fuzz" TIMEOUT 1200)
  endif()
endfunction()
