#include "model/vocabulary.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <unordered_set>

#include "model/ggml_log.h"
#include "model/printable.h"

namespace neve::model {
namespace {

constexpr std::size_t kMostText = std::numeric_limits<std::int32_t>::max() / 2;

// What llama.cpp asserts, or what would make it end the process when text is tokenized.
Status check_tokens(const GgufFile& file, std::int64_t wanted) {
  const Result<std::string> kind = file.text("tokenizer.ggml.model");
  if (!kind.ok()) return kind.status();
  if (*kind != "gpt2" && *kind != "llama") {
    return Status(Code::kUnsupported, file.path() + ": tokenizer " + quoted(*kind) +
                                          " is not supported; gpt2 (BPE) and llama (SentencePiece) are");
  }
  const Result<std::vector<std::string>> tokens = file.texts("tokenizer.ggml.tokens");
  if (!tokens.ok()) return tokens.status();
  if (std::ssize(*tokens) != wanted) {
    return Status(Code::kDamaged, file.path() + ": key 'tokenizer.ggml.tokens': wanted " + std::to_string(wanted) +
                                      " tokens, one for each row of 'token_embd.weight', got " +
                                      std::to_string(tokens->size()));
  }
  std::unordered_set<std::string> seen;
  for (const std::string& token : *tokens) {
    if (!token.empty() && !seen.insert(token).second) {
      return Status(Code::kDamaged,
                    file.path() + ": key 'tokenizer.ggml.tokens': token " + quoted(token) + " comes twice");
    }
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Vocabulary>> Vocabulary::load(const GgufFile& file, std::int64_t tokens) {
  NEVE_RETURN_IF_ERROR(check_tokens(file, tokens));
  auto out = std::make_unique<Vocabulary>();
  out->path_ = file.path();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  const LogCapture log;
  out->model_.reset(llama_model_load_from_file(file.path().c_str(), params));
  if (out->model_ == nullptr) return Status(Code::kDamaged, file.path() + ": vocabulary: " + log.reason());
  out->vocabulary_ = llama_model_get_vocab(out->model_.get());
  const char* const text = llama_model_chat_template(out->model_.get(), nullptr);
  if (text != nullptr) out->template_ = text;
  return out;
}

Result<std::vector<std::int32_t>> Vocabulary::tokenize(std::string_view text, Specials specials) const {
  if (text.size() > kMostText) {
    return Status(Code::kInvalidArgument,
                  "text: wanted at most " + std::to_string(kMostText) + " bytes, got " + std::to_string(text.size()));
  }
  // A token stands for at least one byte, begin and end of text aside; SentencePiece may put a space in front.
  std::vector<std::int32_t> tokens(text.size() + 8);
  const auto call = [&] {
    return llama_tokenize(vocabulary_, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                          static_cast<std::int32_t>(tokens.size()), specials == Specials::kRecogniseAndBegin,
                          specials != Specials::kPlain);
  };
  try {
    std::int32_t count = call();
    if (count < 0 && count != std::numeric_limits<std::int32_t>::min()) {
      tokens.resize(static_cast<std::size_t>(-count));
      count = call();
    }
    if (count < 0) return Status(Code::kInvalidArgument, "text: too many tokens");
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
  } catch (const std::exception& error) {
    return Status(Code::kInvalidArgument, std::string("text cannot be tokenized: ") + error.what());
  }
}

std::string Vocabulary::text(std::int32_t token) const {
  if (token < 0 || token >= llama_vocab_n_tokens(vocabulary_)) return {};
  std::string piece(32, '\0');
  const auto call = [&] {
    return llama_token_to_piece(vocabulary_, token, piece.data(), static_cast<std::int32_t>(piece.size()), 0, false);
  };
  std::int32_t bytes = call();
  if (bytes < 0) {
    piece.resize(static_cast<std::size_t>(-bytes));
    bytes = call();
  }
  piece.resize(static_cast<std::size_t>(std::max(bytes, 0)));
  return piece;
}

bool Vocabulary::is_end(std::int32_t token) const {
  return token >= 0 && token < llama_vocab_n_tokens(vocabulary_) && llama_vocab_is_eog(vocabulary_, token);
}

Result<std::string> Vocabulary::chat_prompt(std::span<const Model::Message> messages) const {
  if (template_.empty()) return Status(Code::kUnsupported, path_ + ": the file holds no chat template");
  std::vector<llama_chat_message> chat;
  std::size_t bytes = 0;
  for (const Model::Message& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      return Status(Code::kInvalidArgument, "role: wanted system, user or assistant, got " + quoted(message.role));
    }
    chat.push_back({message.role.c_str(), message.text.c_str()});
    bytes += message.role.size() + message.text.size();
  }
  std::string prompt(2 * bytes + 256, '\0');
  const auto call = [&] {
    return llama_chat_apply_template(template_.c_str(), chat.data(), chat.size(), true, prompt.data(),
                                     static_cast<std::int32_t>(prompt.size()));
  };
  std::int32_t written = call();
  if (written > std::ssize(prompt)) {
    prompt.resize(static_cast<std::size_t>(written));
    written = call();
  }
  if (written < 0) {
    return Status(Code::kUnsupported, path_ + ": its chat template is none that llama.cpp's built-in list knows");
  }
  prompt.resize(static_cast<std::size_t>(written));
  return prompt;
}

}  // namespace neve::model
