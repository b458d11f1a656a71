#include "model/utf8_pieces.h"

#include <gtest/gtest.h>

namespace neve::model {
namespace {

// All of `bytes`, fed in pieces of `step` bytes.
std::string fed(const std::string& bytes, std::size_t step) {
  Utf8Pieces pieces;
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += step) out += pieces.feed(bytes.substr(i, step));
  return out + pieces.finish();
}

TEST(Utf8Pieces, CutsDoNotMatter) {
  const std::string text = "a\u00e9\u20ac\U0001F600z\U0010FFFF\u0800\uD7FF";
  for (std::size_t step = 1; step <= text.size(); ++step) EXPECT_EQ(fed(text, step), text);
}

TEST(Utf8Pieces, HoldsBackWhatIsIncomplete) {
  Utf8Pieces pieces;
  EXPECT_EQ(pieces.feed("x\xe2"), "x");
  EXPECT_EQ(pieces.feed("\x82"), "");
  EXPECT_EQ(pieces.feed("\xacy"), "\u20acy");
  EXPECT_EQ(pieces.finish(), "");
  EXPECT_EQ(pieces.feed("\xf0\x9f"), "");
  EXPECT_EQ(pieces.finish(), "\uFFFD");
  EXPECT_EQ(pieces.finish(), "");
}

TEST(Utf8Pieces, ReplacesWhatIsInvalid) {
  for (std::size_t step = 1; step < 5; ++step) {
    EXPECT_EQ(fed("a\x80z", step), "a\uFFFDz");                            // a continuation without a lead
    EXPECT_EQ(fed("\xc0\xaf", step), "\uFFFD\uFFFD");                      // overlong
    EXPECT_EQ(fed("\xe0\x80\x80", step), "\uFFFD\uFFFD\uFFFD");            // overlong
    EXPECT_EQ(fed("\xed\xa0\x80", step), "\uFFFD\uFFFD\uFFFD");            // a surrogate
    EXPECT_EQ(fed("\xf4\x90\x80\x80", step), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
    EXPECT_EQ(fed("\xe2\x82z", step), "\uFFFDz");                          // cut short
    EXPECT_EQ(fed("\xff", step), "\uFFFD");
  }
}

}  // namespace
}  // namespace neve::model
