// Cuts a stream of bytes, as tokens give them, into pieces of whole UTF-8 characters.
//
// A character that is split between tokens waits for its rest; bytes that can be part of none become U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace neve::model {

class Utf8Pieces {
 public:
  // Takes more bytes. Returns: all characters that are now complete; may be empty.
  std::string feed(std::string_view bytes);
  // At the end of the stream: a U+FFFD if an incomplete character is left, else nothing.
  std::string finish();

 private:
  std::string held_;  // the start of a character, at most 3 bytes
};

}  // namespace neve::model
