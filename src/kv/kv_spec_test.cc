#include "neve/kv_spec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace neve {
namespace {

KvSpec parsed(const std::string& text) {
  const Result<KvSpec> spec = parse_kv_spec(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status().message();
  return spec.ok() ? *spec : KvSpec();
}

// The error must carry the code, quote the spec as typed, and name what is wrong.
void expect_error(const std::string& text, Code code, const std::vector<std::string>& names) {
  const Result<KvSpec> spec = parse_kv_spec(text);
  ASSERT_FALSE(spec.ok()) << text;
  EXPECT_EQ(spec.status().code(), code) << text << ": " << spec.status().message();
  const std::string& message = spec.status().message();
  EXPECT_NE(message.find('"' + text + '"'), std::string::npos) << message;
  for (const std::string& name : names) EXPECT_NE(message.find(name), std::string::npos) << text << ": " << message;
}

TEST(KvSpec, FixedWidths) {
  EXPECT_EQ(parsed("f16").mode, KvMode::kF16);
  for (const int bits : {8, 4, 2}) {
    const KvSpec spec = parsed("int" + std::to_string(bits));
    EXPECT_EQ(spec.mode, KvMode::kFixed);
    EXPECT_EQ(spec.bits, bits);
    EXPECT_EQ(spec.shift, Shift::kEquivalent);
    EXPECT_EQ(spec.sinks, 4);
    EXPECT_EQ(spec.window, 128);
    EXPECT_EQ(spec.text, "int" + std::to_string(bits));
  }
}

TEST(KvSpec, GradedAndAuto) {
  for (const auto& [text, width] : {std::pair{"2", 2.0}, {"2.5", 2.5}, {"3", 3.0}, {"4", 4.0}, {"8", 8.0}}) {
    const KvSpec spec = parsed(std::string("graded:") + text);
    EXPECT_EQ(spec.mode, KvMode::kGraded);
    EXPECT_EQ(spec.width, width);
    EXPECT_EQ(spec.shift, Shift::kClipped);
    EXPECT_EQ(spec.clip, 0.85);
  }
  EXPECT_EQ(parsed("auto").mode, KvMode::kAuto);
  EXPECT_EQ(parsed("auto").width, 0.0);
  EXPECT_EQ(parsed("auto:6").width, 6.0);
  EXPECT_EQ(parsed("auto:16").width, 16.0);
}

TEST(KvSpec, PaperAndPeers) {
  for (const int bits : {8, 4, 2}) {
    const KvSpec spec = parsed("pm:" + std::to_string(bits));
    EXPECT_EQ(spec.mode, KvMode::kPaper);
    EXPECT_EQ(spec.bits, bits);
    EXPECT_EQ(spec.shift, Shift::kEquivalent);
  }
  for (const std::string type : {"f16", "q8_0", "q4_0"}) {
    const KvSpec spec = parsed("llama:" + type);
    EXPECT_EQ(spec.mode, KvMode::kPeer);
    EXPECT_EQ(spec.peer_type, type);
  }
}

TEST(KvSpec, Options) {
  const KvSpec spec = parsed("pm:4:shift=direct,group=64,sinks=1,window=256,top=f16");
  EXPECT_EQ(spec.bits, 4);
  EXPECT_EQ(spec.shift, Shift::kDirect);
  EXPECT_EQ(spec.group, 64);
  EXPECT_EQ(spec.sinks, 1);
  EXPECT_EQ(spec.window, 256);
  EXPECT_EQ(parsed("int4:shift=modified").shift, Shift::kModified);
  EXPECT_EQ(parsed("graded:2:shift=equivalent").shift, Shift::kEquivalent);
  EXPECT_EQ(parsed("int2:shift=clipped,clip=0.75").clip, 0.75);
  EXPECT_EQ(parsed("auto:4:window=0").window, 0);
  EXPECT_EQ(parsed("auto:sinks=0").sinks, 0);
  EXPECT_EQ(parsed("auto:sinks=0").width, 0.0);
  EXPECT_EQ(parsed("pm:4:sinks=1:window=64").window, 64);
}

TEST(KvSpec, UnknownNamesListWhatIsUnderstood) {
  for (const char* text : {"", " ", "int3", "int16", "f32", "F16", "grade:4", "auto4", "f16 ", "q8_0", "pm4"}) {
    expect_error(text, Code::kInvalidArgument, {"f16", "int8", "graded:W", "pm:8", "auto:W", "llama:q8_0"});
  }
}

TEST(KvSpec, WrongWidthsAreNamed) {
  expect_error("graded", Code::kInvalidArgument, {"width", "2 to 8"});
  expect_error("graded:", Code::kInvalidArgument, {"width", "2 to 8"});
  expect_error("graded:1.9", Code::kInvalidArgument, {"width", "2 to 8", "\"1.9\""});
  expect_error("graded:8.1", Code::kInvalidArgument, {"width", "\"8.1\""});
  expect_error("graded:nan", Code::kInvalidArgument, {"width", "\"nan\""});
  expect_error("graded:4x", Code::kInvalidArgument, {"width", "\"4x\""});
  expect_error("graded:-4", Code::kInvalidArgument, {"width", "\"-4\""});
  expect_error("auto:1", Code::kInvalidArgument, {"width", "2 to 16", "\"1\""});
  expect_error("auto:17", Code::kInvalidArgument, {"width", "\"17\""});
  expect_error("auto:inf", Code::kInvalidArgument, {"width", "\"inf\""});
  expect_error("auto:", Code::kInvalidArgument, {});
  expect_error("pm", Code::kInvalidArgument, {"final width", "8, 4 or 2"});
  expect_error("pm:3", Code::kInvalidArgument, {"final width", "\"3\""});
  expect_error("pm:44", Code::kInvalidArgument, {"final width", "\"44\""});
  expect_error("f16:8", Code::kInvalidArgument, {"\"f16\"", "no width"});
  expect_error("f16:", Code::kInvalidArgument, {});
  expect_error("int4:2", Code::kInvalidArgument, {"\"int4\"", "no width"});
  expect_error("llama", Code::kInvalidArgument, {"q8_0"});
  expect_error("llama:q5_0", Code::kInvalidArgument, {"q8_0", "\"q5_0\""});
}

TEST(KvSpec, WrongOptionsAreNamed) {
  expect_error("pm:4:shift=best", Code::kInvalidArgument,
               {"shift", "equivalent, direct, modified or clipped", "\"best\""});
  expect_error("pm:4:shift=", Code::kInvalidArgument, {"shift"});
  expect_error("pm:4:shift", Code::kInvalidArgument, {"shift"});
  expect_error("pm:4:group=5", Code::kInvalidArgument, {"group", "multiple of 4", "\"5\""});
  expect_error("pm:4:group=0", Code::kInvalidArgument, {"group", "\"0\""});
  expect_error("pm:4:group=132", Code::kInvalidArgument, {"group", "\"132\""});
  expect_error("int8:sinks=-1", Code::kInvalidArgument, {"sinks", "\"-1\""});
  expect_error("int8:sinks=129", Code::kInvalidArgument, {"sinks", "\"129\""});
  expect_error("int8:sinks=4.5", Code::kInvalidArgument, {"sinks", "\"4.5\""});
  expect_error("int8:sinks=99999999999", Code::kInvalidArgument, {"sinks"});
  expect_error("int8:window=70000", Code::kInvalidArgument, {"window", "\"70000\""});
  expect_error("int8:window=", Code::kInvalidArgument, {"window", "\"\""});
  expect_error("int8:clip=0.4", Code::kInvalidArgument, {"clip", "\"0.4\""});
  expect_error("int8:clip=1.01", Code::kInvalidArgument, {"clip", "\"1.01\""});
  expect_error("int8:top=f32", Code::kInvalidArgument, {"top", "f16 or int16", "\"f32\""});
  expect_error("int8:colour=red", Code::kInvalidArgument, {"\"colour\"", "shift, group, sinks, window, top or clip"});
  expect_error("pm:4:", Code::kInvalidArgument, {"option"});
  expect_error("pm:4:sinks=1,", Code::kInvalidArgument, {"option"});
}

// Options that change nothing would be a wish that is not heard.
TEST(KvSpec, PeersTakeNoOptions) {
  expect_error("llama:f16:window=64", Code::kInvalidArgument, {"llama"});
  expect_error("llama:q8_0:sinks=1", Code::kInvalidArgument, {"llama"});
}

TEST(KvSpec, WhatIsNotBuiltIsRefusedByName) {
  for (const std::string name : {"rtn4", "rtn2", "kivi4", "kivi2", "rotate4", "rotate2", "mikv4", "skvq2"}) {
    expect_error(name, Code::kUnsupported, {"not built yet", "f16, int8"});
  }
  expect_error("pm:8/4", Code::kUnsupported, {"profile"});
  expect_error("pm:4/2", Code::kUnsupported, {"profile"});
  expect_error("pm:4:top=int16", Code::kUnsupported, {"int16", "f16"});
}

TEST(KvSpec, Lists) {
  const auto texts = [](const std::string& list) {
    const Result<std::vector<KvSpec>> specs = parse_kv_specs(list);
    EXPECT_TRUE(specs.ok()) << list << ": " << specs.status().message();
    std::vector<std::string> names;
    if (specs.ok()) {
      for (const KvSpec& spec : *specs) names.push_back(spec.text);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(texts("f16"), (Names{"f16"}));
  EXPECT_EQ(texts("f16,int8,graded:3"), (Names{"f16", "int8", "graded:3"}));
  EXPECT_EQ(texts("pm:4:shift=direct,sinks=1,int4"), (Names{"pm:4:shift=direct,sinks=1", "int4"}));
  EXPECT_EQ(texts("int2:window=64,sinks=0,pm:2:window=32,group=64,auto"),
            (Names{"int2:window=64,sinks=0", "pm:2:window=32,group=64", "auto"}));
  const Result<std::vector<KvSpec>> wrong = parse_kv_specs("f16,int5,int8");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("\"int5\""), std::string::npos);
  EXPECT_FALSE(parse_kv_specs("").ok());
  EXPECT_FALSE(parse_kv_specs("f16,").ok());
  EXPECT_FALSE(parse_kv_specs(",f16").ok());
  EXPECT_FALSE(parse_kv_specs("window=64,f16").ok());
}

TEST(KvSpec, Bytes) {
  const auto bytes = [](const char* text) {
    const Result<unsigned long long> value = parse_bytes(text);
    EXPECT_TRUE(value.ok()) << text;
    return value.ok() ? *value : 0;
  };
  EXPECT_EQ(bytes("12345"), 12345u);
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("7B"), 7u);
  EXPECT_EQ(bytes("100kB"), 100000u);
  EXPECT_EQ(bytes("16MiB"), 16777216u);
  EXPECT_EQ(bytes("1.5GiB"), 1610612736u);
  EXPECT_EQ(bytes("2GB"), 2000000000u);
  EXPECT_EQ(bytes("1TiB"), 1099511627776u);
  EXPECT_EQ(bytes("1TB"), 1000000000000u);
  EXPECT_EQ(bytes("4G"), 4294967296u);
  for (const char* text :
       {"", "MiB", "-1", "1e3", "0x10", "16mib", "16 MiB", "1..5", "inf", "nan", "99999999TiB", "5X"}) {
    const Result<unsigned long long> value = parse_bytes(text);
    EXPECT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().code(), Code::kInvalidArgument);
    EXPECT_NE(value.status().message().find(std::string("\"") + text + '"'), std::string::npos);
  }
}

TEST(KvSpec, BytesForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(16777216), "16.0 MiB");
  EXPECT_EQ(format_bytes(1610612736), "1.5 GiB");
  EXPECT_EQ(format_bytes(1ull << 50), "1024.0 TiB");
}

}  // namespace
}  // namespace neve
