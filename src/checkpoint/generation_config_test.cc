// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GenerationConfig, DefaultsHoldWithoutTheFile) {
  const auto config = read_generation_config("src");
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->stop_tokens, IsEmpty());
  EXPECT_TRUE(config->do_sample);
  EXPECT_EQ(config->temperature, 1.0f);
  EXPECT_EQ(config->top_p, 1.0f);
  EXPECT_EQ(config->top_k, 0);
}

TEST(GenerationConfig, ReadsTheBundledModels) {
  const auto config = read_generation_config("models/tiny-nemotron-h/mlx-4bit");
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_THAT(config->stop_tokens, ElementsAre(2, 0));
  EXPECT_FALSE(config->do_sample);
}

TEST(GenerationConfig, ReadsEveryField) {
  const auto config = parse_generation_config(Json::parse(
      R"({"eos_token_id": 11, "do_sample": true, "temperature": 0.5, "top_p": 0.95, "top_k": 20, "other": "x"})"));
  ASSERT_TRUE(config.ok()) << config.error().what;
  EXPECT_THAT(config->stop_tokens, ElementsAre(11));
  EXPECT_EQ(config->temperature, 0.5f);
  EXPECT_EQ(config->top_p, 0.95f);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_TRUE(
      parse_generation_config(Json::parse(R"({"eos_token_id": null, "top_p": null})")).ok());
}

TEST(GenerationConfig, ErrorsNameTheField) {
  for (const char* text :
       {R"({"eos_token_id": "2"})", R"({"eos_token_id": [2, -1]})",
        R"({"eos_token_id": 2147483648})", R"({"do_sample": 1})", R"({"temperature": -1})",
        R"({"temperature": "1"})", R"({"top_p": 0})", R"({"top_p": 1.5})", R"({"top_k": -1})",
        R"({"top_k": 18446744073709551615})"}) {
    const Json json = Json::parse(text);
    const auto config = parse_generation_config(json);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(config.error().what, HasSubstr("generation_config.json: " + json.begin().key()));
  }
  EXPECT_FALSE(parse_generation_config(Json::array()).ok());
}

}  // namespace
}  // namespace lacuna
