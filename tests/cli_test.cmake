# The program from end to end, on the bundled model.
lacuna_test(cli_test LABEL golden SOURCES cli_test.cc DEPS nlohmann_json::nlohmann_json)
target_include_directories(cli_test PRIVATE ${PROJECT_SOURCE_DIR})  # tests/support
target_compile_definitions(cli_test PRIVATE LACUNA_PROGRAM="$<TARGET_FILE:lacuna>")
add_dependencies(cli_test lacuna)
