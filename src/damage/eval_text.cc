// What a damage run reads when it is given a file.
#include <fstream>
#include <iterator>

#include "neve/damage.h"

namespace neve {

Result<EvalText> read_eval_text(const Model& model, const std::string& path, std::int64_t tokens) {
  if (tokens < 2) {
    return Status(Code::kInvalidArgument, "text: wanted at least 2 tokens, got " + std::to_string(tokens));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(Code::kNotFound, "text: cannot open " + path);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return Status(Code::kNotFound, "text: cannot read " + path);
  Result<std::vector<std::int32_t>> words = model.tokenize(content, true);
  if (!words.ok()) return words.status();
  if (words->size() < 2) {
    return Status(Code::kInvalidArgument,
                  "text: " + path + " has " + std::to_string(words->size()) + " tokens; at least 2 are needed");
  }
  if (static_cast<std::int64_t>(words->size()) > tokens) words->resize(static_cast<std::size_t>(tokens));
  return EvalText{std::move(*words), path};
}

}  // namespace neve
