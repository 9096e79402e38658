// SPDX-License-Identifier: Apache-2.0
// Templates that try to crash, hang or eat the memory: each must end in an Error, soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "text/jinja_render.h"

namespace lacuna::jinja {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// A tenth of what a real render may use, so that running into the limits takes no time.
const Limits kSmall{
    .steps = 5'000'000, .bytes = std::uint64_t{50} << 20, .output_bytes = std::size_t{6} << 20};

Result<Text> run(std::string_view source, const Json& variables = Json::object(),
                 const Limits& limits = kSmall) {
  Result<Block> root = parse_template(source, "t");
  if (!root.ok()) return std::move(root).error();
  return render_template(*root, variables, "t", limits);
}

std::string error(std::string_view source, const Json& variables = Json::object(),
                  const Limits& limits = kSmall) {
  const Result<Text> out = run(source, variables, limits);
  EXPECT_FALSE(out.ok()) << source.substr(0, 200);
  return out.ok() ? "" : out.error().what;
}

std::string repeat(std::string_view s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

TEST(JinjaHostile, EndlessRecursion) {
  EXPECT_THAT(error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("levels deep"));
  EXPECT_THAT(
      error(
          "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
      HasSubstr("levels deep"));
  EXPECT_THAT(error("{% macro a(x=a()) %}{% endmacro %}{{ a() }}"), HasSubstr("levels deep"));
  EXPECT_THAT(error("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{{ caller }}{% "
                    "endmacro %}{{ m() }}"),
              HasSubstr("levels deep"));
  EXPECT_THAT(error("{% set ns = namespace() %}{% macro m() %}{{ ns.f() }}{% endmacro %}{% set "
                    "ns.f = m %}{{ m() }}"),
              HasSubstr("levels deep"));
}

TEST(JinjaHostile, DeepSyntax) {
  for (const int n : {250, 5'000, 80'000}) {
    EXPECT_THAT(error("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}"),
                HasSubstr("nested more than"))
        << n;
    EXPECT_THAT(error("{{ " + repeat("[", n) + repeat("]", n) + " }}"),
                HasSubstr("nested more than"))
        << n;
    EXPECT_THAT(error("{{ " + repeat("not ", n) + "1 }}"), HasSubstr("nested more than")) << n;
    EXPECT_THAT(error("{{ " + repeat("-", n) + "1 }}"), HasSubstr("nested more than")) << n;
    EXPECT_THAT(error("{{ 1" + repeat("+1", n) + " }}"), HasSubstr("nested more than")) << n;
    EXPECT_THAT(error("{{ x" + repeat(".x", n) + " }}"), HasSubstr("nested more than")) << n;
    EXPECT_THAT(error("{{ x" + repeat("|e", n) + " }}"), HasSubstr("nested more than")) << n;
    EXPECT_THAT(error("{{ x" + repeat("()", n) + " }}"), HasSubstr("nested more than")) << n;
    EXPECT_THAT(error("{{ 1" + repeat(" if 1 else 1", n) + " }}"), HasSubstr("nested more than"))
        << n;
  }
  EXPECT_THAT(error(repeat("{% if 1 %}", 5'000)), HasSubstr("nested more than"));
  EXPECT_THAT(error("{% set " + repeat("(", 5'000) + "x" + repeat(")", 5'000) + " = 1 %}"),
              HasSubstr("nested more than"));
  // What is wide but not deep is fine.
  EXPECT_TRUE(run("{{ 1" + repeat(" ~ 1", 20'000) + " }}").ok());
  EXPECT_TRUE(run("{% if 0 %}" + repeat("{% elif 0 %}", 5'000) + "{% endif %}").ok());
}

TEST(JinjaHostile, SourceSize) {
  EXPECT_TRUE(run(std::string(1 << 20, 'x')).ok());
  EXPECT_THAT(error(std::string((1 << 20) + 1, 'x')),
              HasSubstr("1048577 bytes, the most is 1048576"));
}

TEST(JinjaHostile, EndlessWork) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string nested =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(error(nested), HasSubstr("more than"));
  EXPECT_THAT(error("{{ range(100001) }}"), HasSubstr("the most is 100000"));
  EXPECT_THAT(error("{{ range(-9223372036854775807, 9223372036854775807) }}"),
              HasSubstr("range too big"));
  EXPECT_FALSE(run("{{ 7 ** 10000000000000 }}").ok());
  EXPECT_EQ(run("{{ 1 ** 10000000000000 }}")->bytes(), "1");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(JinjaHostile, MemoryBombs) {
  EXPECT_FALSE(run("{{ 'x' * 99999999999 }}").ok());
  EXPECT_FALSE(run("{{ [1] * 99999999999 }}").ok());
  EXPECT_FALSE(run("{{ 'x' * 170141183460469231731687303715884105727 }}").ok());
  const std::string doubling =
      "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% "
      "endfor %}";
  EXPECT_FALSE(run(doubling).ok());
  EXPECT_FALSE(run("{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + "
                   "ns.x %}{% endfor %}")
                   .ok());
  EXPECT_FALSE(run("{{ ('x' * 10000)|replace('x', 'y' * 10000)|replace('y', 'z' * 10000) }}").ok());
  EXPECT_FALSE(run("{{ ('x' * 10000)|replace('', 'y' * 1000000) }}").ok());
  EXPECT_FALSE(run("{{ (range(100000)|list)|join('x' * 1000000) }}").ok());
  EXPECT_FALSE(run("{{ ([1] * 100000)|tojson(indent=1000000000) }}").ok());
  EXPECT_FALSE(run("{{ ('a\n' * 100000)|indent(1000000) }}").ok());
  EXPECT_THAT(error("{% set x = 'x' * 1000000 %}{% for i in range(100000) %}{{ x }}{% endfor %}"),
              HasSubstr("longer than 6291456 bytes"));
}

TEST(JinjaHostile, DeepAndSharedValues) {
  const std::string deep =
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}";
  EXPECT_THAT(error(deep), HasSubstr("nest more than 200 deep"));
  EXPECT_THAT(error("{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': "
                    "ns.x} %}{% endfor %}"),
              HasSubstr("nest more than"));
  EXPECT_THAT(error("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = "
                    "ns.x|reverse|batch(1) %}{% endfor %}{{ ns.x }}"),
              HasSubstr("printed"));
  const std::string shared =
      "{% set ns = namespace(x=[1]) %}{% for i in range(150) %}{% set ns.x = (ns.x, ns.x) %}{% "
      "endfor %}";
  EXPECT_TRUE(run(shared).ok());
  EXPECT_FALSE(run(shared + "{{ ns.x }}").ok());
  EXPECT_FALSE(run(shared + "{{ ns.x|tojson }}").ok());
  EXPECT_FALSE(run(shared + "{% set a = ns.x %}{% set ns.x = [1] %}{% for i in range(150) %}{% set "
                            "ns.x = (ns.x, ns.x) %}{% endfor %}{{ a == ns.x }}")
                   .ok());
  EXPECT_FALSE(run("{% set ns = namespace(x=1) %}{% for i in range(150) %}{% set ns.x = (ns.x, "
                   "ns.x) %}{% endfor %}{{ {ns.x: 1} }}")
                   .ok());
}

TEST(JinjaHostile, Cycles) {
  EXPECT_FALSE(run("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}").ok());
  EXPECT_TRUE(run("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns == ns.x.x }}").ok());
  EXPECT_TRUE(
      run("{% for i in [1, 2] %}{{ loop.changed(loop) }}{{ loop.changed(loop.cycle) }}{% endfor %}")
          .ok());
  EXPECT_FALSE(run("{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}{% endfor "
                   "%}{{ ns.l.changed(ns.l) }}")
                   .ok());
}

TEST(JinjaHostile, ValuesOutliveTheirScopes) {
  EXPECT_EQ(run("{% set ns = namespace() %}{% for i in [1, 2, 3] if i != 2 %}{% macro m() %}{{ i "
                "}}{% endmacro %}{% set ns.m = m %}"
                "{% set ns.l = loop %}{% endfor %}{{ ns.m() }}{{ ns.l.index }}{{ ns.l.last }}{{ "
                "ns.l.cycle('a', 'b') }}")
                ->bytes(),
            "32Trueb");
  EXPECT_EQ(
      run("{% macro f(x) %}{% macro g() %}{{ x }}{% endmacro %}{% set ns.g = g %}{% endmacro %}"
          "{% set ns = namespace() %}{{ f(5) }}{% for i in range(9) %}{% endfor %}{{ ns.g() }}")
          ->bytes(),
      "5");
}

TEST(JinjaHostile, DeepInput) {
  Json deep = Json::array();
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  EXPECT_THAT(error("x", {{"messages", deep}}), HasSubstr("nest"));
}

TEST(JinjaHostile, InvalidUtf8IsKept) {
  Json v;
  v["messages"] = Json::array({"a\xFF\xC3(\xED\xA0\x80"});
  EXPECT_EQ(run("{{ messages[0] }}", v)->bytes(), "a\xFF\xC3(\xED\xA0\x80");
  EXPECT_EQ(run("{{ messages[0][::-1]|length }}", v)->bytes(), "7");
  EXPECT_TRUE(
      run("{{ messages|tojson(ensure_ascii=true) }}{{ messages }}{{ messages[0]|upper|title }}", v)
          .ok());
  EXPECT_TRUE(run("\xFF{{ '\xC3' }}").ok());
  EXPECT_FALSE(run("{{ \xC3\xA9 }}").ok());
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const Json kChat = Json::parse(R"({"messages": [{"role": "user", "content": "q"},
  {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1]}}}]},
  {"role": "tool", "content": "t"}], "add_generation_prompt": true, "tools": [{"function": {"name": "f", "parameters": {"properties": {"x": {"type": "array"}}}}}]})");

// Cut and damaged templates give a text or an error; the sanitizer builds look for more.
TEST(JinjaHostile, DamagedTemplates) {
  Limits limits;
  limits.steps = 100'000;
  std::mt19937 random(7);
  for (const char* name : {"nemotron_like.jinja", "glm_like.jinja", "strict_like.jinja"}) {
    const std::string source = read_file(std::string("tests/data/templates/") + name);
    ASSERT_GT(source.size(), 1000u);
    for (std::size_t n = 0; n < source.size(); n += 7)
      (void)run(source.substr(0, n), kChat, limits);
    for (int i = 0; i < 500; ++i) {
      std::string damaged = source;
      for (int k = 0; k < 3; ++k)
        damaged[random() % damaged.size()] = "{}%#-'\"()[]|.~ \n\\0a"[random() % 20];
      (void)run(damaged, kChat, limits);
    }
  }
}

TEST(JinjaHostile, SmallBudgetsAreKept) {
  Limits limits;
  limits.steps = 100;
  EXPECT_THAT(error("{% for i in range(1000) %}{% endfor %}", Json::object(), limits),
              HasSubstr("more than 100 steps"));
  limits = {};
  limits.bytes = 1000;
  EXPECT_THAT(error("{{ 'x' * 2000 }}", Json::object(), limits), HasSubstr("too long"));
  limits = {};
  limits.output_bytes = 10;
  EXPECT_THAT(error("{{ 'x' * 11 }}", Json::object(), limits), HasSubstr("longer than 10 bytes"));
  EXPECT_TRUE(run("{{ 'x' * 10 }}", Json::object(), limits).ok());
}

}  // namespace
}  // namespace lacuna::jinja
