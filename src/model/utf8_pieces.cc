#include "model/utf8_pieces.h"

namespace neve::model {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Verdict { kWhole, kIncomplete, kInvalid };

struct Character {
  Verdict verdict = Verdict::kInvalid;
  std::size_t bytes = 1;  // to take: the character, or the part that cannot be one
};

// The first character of `text`, by the table of well-formed sequences in the Unicode standard (3-7): no overlong forms,
// no surrogates, nothing above U+10FFFF.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Verdict::kWhole, 1};
  std::size_t length = 0;
  unsigned low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Verdict::kInvalid, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {Verdict::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Verdict::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Verdict::kWhole, length};
}

}  // namespace

std::string Utf8Pieces::feed(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Character next = first_character(rest);
    if (next.verdict == Verdict::kIncomplete) break;
    out += next.verdict == Verdict::kWhole ? rest.substr(0, next.bytes) : kReplacement;
    rest.remove_prefix(next.bytes);
  }
  held_ = std::string(rest);
  return out;
}

std::string Utf8Pieces::finish() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace neve::model
