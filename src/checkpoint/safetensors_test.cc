// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/safetensors_writer.h"

namespace lacuna {
namespace {

using test::filled;
using test::safetensors_bytes;
using test::safetensors_raw;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<SafetensorsFile> parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()},
                           "a.safetensors");
}

std::string error_of(const std::string& file, ErrorCode code = ErrorCode::kCorrupt) {
  auto result = parse(file);
  EXPECT_FALSE(result.ok());
  if (result) return "no error";
  EXPECT_EQ(result.error().code, code);
  EXPECT_THAT(result.error().what, StartsWith("a.safetensors: "));
  EXPECT_EQ(result.error().what.find('\n'), std::string::npos);
  return result.error().what;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}
// One tensor "t" and `data_bytes` bytes of data.
std::string one(const std::string& value, std::size_t data_bytes) {
  return safetensors_raw("{\"t\":" + value + "}", std::string(data_bytes, '\0'));
}

const test::TestTensors& small_tensors() {
  static const test::TestTensors tensors = {
      {"layers.0.norm.weight", filled(Dtype::kF32, {3}, 1.5f)},
      {"layers.1.norm.weight", filled(Dtype::kBf16, {2, 2}, 2.0f)},
      {"scalar", filled(Dtype::kU8, {}, 7)}};
  return tensors;
}

TEST(Safetensors, ReadsWhatTheHeaderSays) {
  const std::string file = safetensors_bytes(small_tensors());
  auto parsed = parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.error().what;
  EXPECT_EQ(parsed->metadata.at("format"), "mlx");
  EXPECT_EQ(parsed->header_bytes + 12 + 8 + 1, file.size());
  ASSERT_EQ(parsed->tensors.size(), 3u);
  const TensorView& first = parsed->tensors[0];
  EXPECT_EQ(first.name, "layers.0.norm.weight");
  EXPECT_EQ(first.dtype, Dtype::kF32);
  EXPECT_EQ(first.shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(first.bytes, 12u);
  EXPECT_EQ(first.file, "a.safetensors");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data), first.bytes),
            small_tensors().at("layers.0.norm.weight").bytes);
  EXPECT_EQ(parsed->tensors[1].elements(), 4);
  EXPECT_EQ(parsed->tensors[2].elements(), 1);
  EXPECT_EQ(*parsed->tensors[2].data, 7);
}

TEST(Safetensors, OrderInTheHeaderDoesNotMatter) {
  const std::string file = safetensors_raw(
      "{\"b\":" + entry("U8", "[2]", "[3,5]") + ",\"a\":" + entry("U8", "[3]", "[0,3]") + "}   ",
      "abcde");
  auto parsed = parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.error().what;
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(*parsed->tensors[1].data, 'd');
}

TEST(Safetensors, AcceptsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(parse(safetensors_raw("{}", "")).ok());
  const std::string file = safetensors_raw("{\"a\":" + entry("F32", "[0,5]", "[0,0]") +
                                               ",\"b\":" + entry("U8", "[1]", "[0,1]") +
                                               ",\"c\":" + entry("F32", "[0]", "[1,1]") + "}",
                                           "x");
  EXPECT_TRUE(parse(file).ok()) << parse(file).error().what;
}

// L2: cut 1 byte, 1 KB and a whole tensor; the refusal names the tensor and the missing bytes.
TEST(Safetensors, NamesTheTensorOfATruncatedFile) {
  const std::string file = safetensors_bytes(
      {{"a", filled(Dtype::kF32, {1000}, 1)}, {"b", filled(Dtype::kF32, {1000}, 1)}});
  for (const std::size_t cut : {1u, 1024u, 4000u}) {
    EXPECT_EQ(error_of(file.substr(0, file.size() - cut)),
              "a.safetensors: b: ends at byte " + std::to_string(file.size()) + ", the file has " +
                  std::to_string(file.size() - cut) + " (truncated? " + std::to_string(cut) +
                  " bytes are missing)");
  }
}

TEST(Safetensors, EveryCutIsAnError) {
  const std::string file = safetensors_bytes(small_tensors());
  for (std::size_t cut = 0; cut < file.size(); ++cut) error_of(file.substr(0, cut));
  EXPECT_THAT(error_of(""), HasSubstr("0 bytes, wanted at least the 8"));
  EXPECT_THAT(error_of(file.substr(0, 50)), HasSubstr("the header ends at byte"));
}

TEST(Safetensors, BytesAfterTheTensorsAreAnError) {
  EXPECT_THAT(error_of(safetensors_bytes(small_tensors()) + "x"),
              HasSubstr("the tensors end at byte"));
}

// A flipped bit may leave a right file (in a name, say), but then every view still lies inside it.
TEST(Safetensors, EveryFlippedHeaderBitIsAnErrorOrAFileThatHolds) {
  std::string file = safetensors_bytes(small_tensors());
  const std::size_t header_end = parse(file)->header_bytes;
  int errors = 0;
  for (std::size_t bit = 0; bit < 8 * header_end; ++bit) {
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << (bit % 8)));
    auto parsed = parse(file);
    if (!parsed) ++errors;
    if (parsed) {
      for (const TensorView& tensor : parsed->tensors) {
        const std::uint8_t* begin = reinterpret_cast<const std::uint8_t*>(file.data());
        EXPECT_GE(tensor.data, begin);
        EXPECT_LE(tensor.data + tensor.bytes, begin + file.size());
        EXPECT_EQ(static_cast<std::size_t>(tensor.elements()) * dtype_bytes(tensor.dtype),
                  tensor.bytes);
      }
    }
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << (bit % 8)));
  }
  EXPECT_GT(errors, 1000);
}

TEST(Safetensors, RefusesAHeaderThatIsTooLong) {
  std::string file = safetensors_raw("{}", "");
  file[3] = 2;  // 2 << 24 bytes more
  EXPECT_THAT(error_of(file), HasSubstr("more than the 25000000"));
  for (int i = 0; i < 8; ++i) file[static_cast<std::size_t>(i)] = '\xFF';
  EXPECT_THAT(error_of(file), HasSubstr("a header of 18446744073709551615 bytes"));
}

TEST(Safetensors, NamesAGitLfsPointer) {
  EXPECT_THAT(error_of("version https://git-lfs.example/spec/v1\noid sha256:00\nsize 5\n"),
              HasSubstr("Git LFS pointer"));
}

TEST(Safetensors, RefusesOverlapAndHoles) {
  const auto two = [](const char* b_offsets, std::size_t bytes) {
    return safetensors_raw(
        "{\"a\":" + entry("U8", "[4]", "[0,4]") + ",\"b\":" + entry("U8", "[4]", b_offsets) + "}",
        std::string(bytes, '\0'));
  };
  EXPECT_TRUE(parse(two("[4,8]", 8)).ok());
  EXPECT_THAT(error_of(two("[3,7]", 7)),
              HasSubstr("b: begins at data byte 3, inside a, which ends at 4"));
  EXPECT_THAT(error_of(two("[0,4]", 4)), HasSubstr("inside"));
  EXPECT_THAT(error_of(two("[5,9]", 9)),
              HasSubstr("b: begins at data byte 5, a hole after the one before ends at 4"));
  EXPECT_THAT(error_of(one(entry("U8", "[4]", "[1,5]"), 5)),
              HasSubstr("t: begins at data byte 1, a hole"));
}

TEST(Safetensors, RefusesSizesThatDisagree) {
  EXPECT_THAT(error_of(one(entry("F32", "[2,3]", "[0,20]"), 20)),
              HasSubstr("t: F32 [2, 3] has 24 bytes, its data_offsets are [0,20]"));
  EXPECT_THAT(error_of(one(entry("U8", "[4]", "[4,0]"), 4)), HasSubstr("data_offsets are [4,0]"));
  EXPECT_THAT(error_of(one(entry("F64", "[]", "[0,4]"), 4)), HasSubstr("F64 [] has 8 bytes"));
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  for (const char* shape :
       {"[4294967296,4294967296]", "[9223372036854775807]", "[9223372036854775807,2]",
        "[18446744073709551615]", "[4294967296,4294967296,0]", "[2305843009213693952,2,2,2]"}) {
    EXPECT_THAT(error_of(one(entry("F32", shape, "[0,0]"), 0)),
                AllOf(HasSubstr("t: shape"), HasSubstr("overflows")));
  }
}

TEST(Safetensors, RefusesFieldsOfTheWrongKind) {
  for (const char* value :
       {"1", "null", "[]", "{}", "{\"dtype\":\"U8\",\"shape\":[1]}",
        "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}",
        "{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}",
        "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,-1]}",
        "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}}",
        "{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}"}) {
    EXPECT_THAT(error_of(one(value, 1)), HasSubstr(": t: ")) << value;
  }
}

TEST(Safetensors, NamesADtypeThatIsNotSupported) {
  for (const char* dtype : {"F4", "F8_E8M0", "C64", "bf16", ""}) {
    EXPECT_THAT(error_of(one(entry(dtype, "[1]", "[0,1]"), 1), ErrorCode::kUnsupported),
                HasSubstr("t: dtype \"" + std::string(dtype) + "\" is not supported"));
  }
}

TEST(Safetensors, RefusesHeadersThatAreNotPlainObjects) {
  for (const char* header : {"", "[]", " {}", "{", "{}x", "{\"a\":Infinity}", "null"})
    error_of(safetensors_raw(header, ""));
  const std::string t = "\"t\":" + entry("U8", "[1]", "[0,1]");
  EXPECT_THAT(error_of(safetensors_raw("{" + t + "," + t + "}", "x")),
              HasSubstr("t: the key is there twice"));
  EXPECT_THAT(error_of(safetensors_raw("{\"__metadata__\":{\"a\":1}}", "")),
              HasSubstr("__metadata__: a is 1"));
  EXPECT_THAT(error_of(safetensors_raw("{\"__metadata__\":[]}", "")),
              HasSubstr("__metadata__: wanted an object"));
  EXPECT_THAT(error_of(safetensors_raw("{\"a\\nb\":" + entry("U8", "[1]", "[0,1]") + "}", "x")),
              HasSubstr("tensor name \"a\\x0ab\""));
  EXPECT_THAT(error_of(safetensors_raw("{\"\":" + entry("U8", "[1]", "[0,1]") + "}", "x")),
              HasSubstr("is empty"));
  EXPECT_THAT(error_of(one(std::string(100000, '['), 0)), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace lacuna
