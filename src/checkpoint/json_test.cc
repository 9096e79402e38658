// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr JsonOptions kStrict{.bare_numbers = false, .refuse_duplicates = true, .max_depth = 100};

Json parsed(const std::string& text, const JsonOptions& options = {}) {
  auto result = parse_json(text, "config.json", options);
  EXPECT_TRUE(result.ok()) << text << ": " << (result ? "" : result.error().what);
  return result ? *result : Json();
}

std::string error_of(const std::string& text, const JsonOptions& options = {}) {
  auto result = parse_json(text, "config.json", options);
  EXPECT_FALSE(result.ok()) << text;
  if (result) return "no error";
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(result.error().what.find('\n'), std::string::npos) << result.error().what;
  return result.error().what;
}

TEST(Json, ReadsWhatStrictJsonAllows) {
  const std::string text =
      R"( {"a": [1, -2, 3.5, 1e3, -0.25E-2, true, false, null], "b": {}, "c": [], "": "x"} )";
  EXPECT_EQ(parsed(text, kStrict), Json::parse(text));
  EXPECT_EQ(parsed("7"), Json(7));
  EXPECT_EQ(parsed("\xEF\xBB\xBF{}"), Json::object());
}

TEST(Json, KeepsIntegersExact) {
  EXPECT_EQ(parsed("9223372036854775807").get<std::int64_t>(), INT64_MAX);
  EXPECT_EQ(parsed("-9223372036854775808").get<std::int64_t>(), INT64_MIN);
  EXPECT_TRUE(parsed("18446744073709551615").is_number_unsigned());
  EXPECT_EQ(parsed("18446744073709551615").get<std::uint64_t>(), UINT64_MAX);
  EXPECT_TRUE(parsed("18446744073709551616").is_number_float());
  EXPECT_TRUE(parsed("1.0").is_number_float());
}

// L1: what Python's json writes for non-finite numbers.
TEST(Json, AcceptsBareInfinityAndNan) {
  const Json value =
      parsed(R"({"time_step_limit": [0.0, Infinity], "x": -Infinity, "y": NaN, "s": "Infinity"})");
  EXPECT_EQ(value["time_step_limit"][1].get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(value["x"].get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(value["y"].get<double>()));
  EXPECT_EQ(value["s"], "Infinity");
  EXPECT_THAT(error_of(R"({"a": Infinity})", kStrict), HasSubstr("a: wanted a value, found 'I'"));
  EXPECT_THAT(error_of("Infinit"), HasSubstr("found 'I'"));
  EXPECT_THAT(error_of("-NaN"), HasSubstr("found '-'"));
}

// L1: a real syntax error names file, line, column and key.
TEST(Json, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"limit\": [0, x]}"),
            "config.json:2:15: limit[1]: wanted a value, found 'x'");
  EXPECT_EQ(error_of("{\"a\": {\"b\": tru}}"), "config.json:1:13: a.b: wanted a value, found 't'");
  EXPECT_EQ(error_of(""), "config.json:1:1: wanted a value, found the end");
  EXPECT_EQ(error_of("{} x"), "config.json:1:4: wanted the end of the file, found 'x'");
}

TEST(Json, RefusesBrokenText) {
  for (const char* text : {"{",
                           "[",
                           "[1,",
                           "[1,]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "\"abc",
                           "\"\\x\"",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "1e",
                           "+1",
                           "nul",
                           "[1 2]",
                           "{\"a\":1 \"b\":2}",
                           "\"\n\"",
                           "1e999",
                           "'a'",
                           "\\",
                           "]"}) {
    error_of(text);
  }
}

TEST(Json, DecodesEscapes) {
  EXPECT_EQ(parsed(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(parsed(R"("\u0041\u00e9\u20ac\ud83d\ude00")"), "Aé€😀");
  EXPECT_EQ(parsed(R"("\u0000")").get<std::string>(), std::string(1, '\0'));
  for (const char* text : {R"("\ud83d")", R"("\ud83dx")", R"("\ud83d\u0041")", R"("\ude00")",
                           R"("\u12")", R"("\u12G4")", R"("\u)", R"("\ud83d\u)"}) {
    error_of(text);
  }
}

TEST(Json, RefusesBytesThatAreNotUtf8) {
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                            "\xF4\x90\x80\x80", "\xF5", "\xFF", "\xF0\x9F\x98"}) {
    EXPECT_THAT(error_of(std::string("\"") + bytes + "\""), HasSubstr("not UTF-8"));
  }
  EXPECT_EQ(parsed("\"\xF0\x9F\x98\x80 \xED\x9F\xBF\""), "\xF0\x9F\x98\x80 \xED\x9F\xBF");
}

TEST(Json, BoundsDepth) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  parsed(nested(100));
  EXPECT_THAT(error_of(nested(101)), HasSubstr("nested deeper than 100 levels"));
  error_of(std::string(1'000'000, '['));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper"));
}

TEST(Json, LastOfEqualKeysCountsUnlessRefused) {
  const Json value = parsed(R"({"a": 1, "b": 2, "a": 3})");
  EXPECT_EQ(value.dump(), R"({"a":3,"b":2})");
  EXPECT_THAT(error_of(R"({"a": 1, "\u0061": 2})", kStrict),
              HasSubstr("1:10: \\\\u0061: the key is there twice"));
}

TEST(Json, ManyKeysStayFast) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"key" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text.back() = '}';
  EXPECT_EQ(parsed(text).size(), 200'000u);
}

TEST(Json, EveryCutOfAConfigIsAnErrorNotACrash) {
  const std::string text =
      R"({"a": [1.5e3, "x\u00e9\ud83d\ude00", -Infinity, NaN], "b": {"c": null, "d": true}})";
  for (std::size_t cut = 0; cut < text.size(); ++cut) error_of(text.substr(0, cut));
  parsed(text);
}

TEST(Printable, IsOneShortLine) {
  EXPECT_EQ(printable("a\nb\"\\\x01\x7F\xFF é"), "a\\x0ab\\\"\\\\\\x01\\x7f\\xff é");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable_json(Json("a\nb")), "\"a\\x0ab\"");
  EXPECT_EQ(printable_json(Json("\xFF")), "\"\\xff\"");
  EXPECT_EQ(printable_json(Json::array({1, 2})), "[1,2]");
}

}  // namespace
}  // namespace lacuna
