# The house rules as tests: includes point down, no weak symbols in kernels, and the tools that check it work.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME layers COMMAND ${PYTHON3} ${PROJECT_SOURCE_DIR}/tools/check_layers.py)
add_test(NAME isa_symbols COMMAND ${PROJECT_SOURCE_DIR}/tools/check_isa_symbols.sh ${PROJECT_BINARY_DIR})
add_test(NAME house COMMAND ${PROJECT_SOURCE_DIR}/tests/house_test.sh)
set_tests_properties(layers isa_symbols house PROPERTIES LABELS house)
set_tests_properties(isa_symbols house PROPERTIES
  ENVIRONMENT "NM=${CMAKE_NM};CXX=${CMAKE_CXX_COMPILER}")
