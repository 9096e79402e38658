# The helpers every folder's CMakeLists.txt uses, so that a folder lists its files and nothing else.

# Warnings are errors, and arithmetic is what the source says: an fma is written, never contracted.
add_library(lacuna_flags INTERFACE)
target_compile_features(lacuna_flags INTERFACE cxx_std_20)
target_compile_options(lacuna_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lacuna_flags INTERFACE -Wno-restrict)  # GCC 12: false alarms in std::string
endif()
target_include_directories(lacuna_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)

# lacuna_library(NAME SOURCES a.cc … DEPS lacuna_base …)
function(lacuna_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC lacuna_flags ${A_DEPS})
endfunction()

# lacuna_test(NAME LABEL exact|bounded|golden|hostile|unit SOURCES a_test.cc … DEPS … [FILTER f])
# Every test runs in the source root, so that data is named by its path in the repository.
function(lacuna_test name)
  if(NOT LACUNA_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "LABEL;FILTER" "SOURCES;DEPS" ${ARGN})
  if(LACUNA_SANITIZE AND A_LABEL STREQUAL golden)
    return()  # recordings are compared in release builds; what they run is tested here by other tests
  endif()
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})  # tests/support
  # What is tested lies in libraries; the test's own code only has to compile soon.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  target_link_libraries(${name} PRIVATE lacuna_flags ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  lacuna_test_again(${name} LABEL ${A_LABEL} OF ${name} FILTER ${A_FILTER})
endfunction()

# lacuna_test_again(NAME LABEL … OF program [FILTER f] [ENV VAR=value …]): another run of a test
# program: other cases of it, or the same under another environment.
function(lacuna_test_again name)
  if(NOT LACUNA_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "LABEL;OF;FILTER" "ENV" ${ARGN})
  set(filter "")
  if(A_FILTER)
    set(filter "--gtest_filter=${A_FILTER}")
  endif()
  add_test(NAME ${name} COMMAND ${A_OF} ${filter} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABEL}" TIMEOUT 600 ENVIRONMENT "${A_ENV}")
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
