# The helpers every folder's CMakeLists.txt uses, so that a folder lists its files and nothing else.

# Warnings are errors, and arithmetic is what the source says: an fma is written, never contracted.
add_library(lacuna_flags INTERFACE)
target_compile_features(lacuna_flags INTERFACE cxx_std_20)
target_compile_options(lacuna_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off -fno-math-errno)
target_include_directories(lacuna_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)

# lacuna_library(NAME SOURCES a.cc … DEPS lacuna_base …)
function(lacuna_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC lacuna_flags ${A_DEPS})
endfunction()

# lacuna_test(NAME LABEL exact|bounded|golden|hostile|unit SOURCES a_test.cc … DEPS …)
# Every test runs in the source root, so that data is named by its path in the repository.
function(lacuna_test name)
  cmake_parse_arguments(A "" "LABEL" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE lacuna_flags ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABEL}" TIMEOUT 600)
endfunction()

# lacuna_fuzz(NAME SOURCES a_fuzz.cc DEPS …): a libFuzzer target, only in a clang build with -DLACUNA_FUZZ=ON.
function(lacuna_fuzz name)
  if(NOT LACUNA_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE lacuna_flags ${A_DEPS} -fsanitize=fuzzer)
endfunction()
