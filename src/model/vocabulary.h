// Words to tokens and back, and the template of a conversation: llama.cpp's, on the vocabulary part of the file.
//
// Threads: read only after load.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llama.h"
#include "model/gguf_file.h"
#include "neve/model.h"
#include "neve/status.h"

namespace neve::model {

// Special tokens in a text: read as characters; recognised; or recognised, with those that begin a text added.
enum class Specials { kPlain, kRecognise, kRecogniseAndBegin };

class Vocabulary {
 public:
  // `tokens`: how many there must be, one for each row of the embedding. What llama.cpp takes for granted is checked
  // first. Errors: kDamaged, kUnsupported (names the kind of tokenizer).
  static Result<std::unique_ptr<Vocabulary>> load(const GgufFile& file, std::int64_t tokens);

  // Errors: kInvalidArgument: text longer than 2 GiB.
  Result<std::vector<std::int32_t>> tokenize(std::string_view text, Specials specials) const;
  // The bytes that a token stands for; a part of a UTF-8 character is possible. Control tokens are empty.
  std::string text(std::int32_t token) const;
  bool is_end(std::int32_t token) const;

  bool has_chat_template() const { return !template_.empty(); }
  // Errors: kUnsupported: no template in the file, or none that llama.cpp knows.
  Result<std::string> chat_prompt(std::span<const Model::Message> messages) const;

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
  };

  std::string path_;
  std::unique_ptr<llama_model, Free> model_;
  const llama_vocab* vocabulary_ = nullptr;
  std::string template_;
};

}  // namespace neve::model
