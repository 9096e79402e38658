// SPDX-License-Identifier: Apache-2.0
// Renders against those of Python's jinja2 with Hugging Face's settings, byte for byte. The
// recordings are made by tools/record_templates.py.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

const std::string kData = "tests/data/templates/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Compares one render with its recording. Where Python fails we must fail; where the message is
// jinja2's own or the template's, it is the same.
void check(const std::string& source, const Json& variables, const Json& recorded) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source, "test");
  Result<RenderedPrompt> rendered =
      parsed.ok() ? parsed->render(variables) : Result<RenderedPrompt>(parsed.error());
  if (recorded.contains("text")) {
    ASSERT_TRUE(rendered.ok()) << rendered.error().what;
    EXPECT_EQ(rendered->text(), recorded["text"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered.ok()) << "Python fails with " << recorded["message"]
                              << ", we give: " << rendered->text();
  EXPECT_EQ(rendered.error().what.find('\n'), std::string::npos);
  EXPECT_NE(rendered.error().what.find("test line "), std::string::npos) << rendered.error().what;
  const std::string kind = recorded["error"];
  if (kind == "UndefinedError" || kind == "TemplateError" || kind == "SecurityError") {
    EXPECT_NE(rendered.error().what.find(recorded["message"].get<std::string>()), std::string::npos)
        << rendered.error().what << "\nwant " << recorded["message"];
  }
}

TEST(JinjaGolden, Snippets) {
  const Json recorded = Json::parse(read_file(kData + "snippets.json"));
  ASSERT_GT(recorded["cases"].size(), 400u);
  for (const Json& c : recorded["cases"]) {
    SCOPED_TRACE(c["source"].dump());
    check(c["source"].get<std::string>(), recorded["variables"], c);
  }
}

TEST(JinjaGolden, Conversations) {
  const Json recorded = Json::parse(read_file(kData + "renders.json"));
  ASSERT_GT(recorded["cases"].size(), 250u);
  for (const Json& c : recorded["cases"]) {
    const std::string path = c["template"];
    const std::string chat = c["chat"];
    const std::string tools = c["tools"];
    SCOPED_TRACE(path + " chat=" + chat + " tools=" + tools + " options=" + c["options"].dump());
    Json variables = {{"messages", recorded["chats"][chat]},
                      {"tools", recorded["tools"][tools]},
                      {"documents", nullptr}};
    variables["add_generation_prompt"] = c["prompt"];
    for (const auto& [name, value] : c["options"].items()) variables[name] = value;
    check(read_file(path.find('/') == std::string::npos ? kData + path : path), variables, c);
  }
}

}  // namespace
}  // namespace lacuna
