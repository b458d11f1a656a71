// ChatSession: the prompt of each turn, by the model's template, against what the cache already holds.

#include <algorithm>

#include "model/model_impl.h"
#include "model/session.h"
#include "neve/generate.h"

namespace neve {

struct ChatSession::Impl {
  const Model& model;
  std::unique_ptr<model::Session> session;
  std::int64_t capacity_tokens = 0;
  std::vector<Model::Message> messages;
  std::string history;  // the text that the cache holds; empty: not known, or nothing

  // What of `prompt` is not in the cache yet. A template that rewrites earlier turns (some drop an answer's reasoning)
  // makes the cache go back to where the two part.
  Result<std::vector<std::int32_t>> new_tokens(const std::string& prompt) {
    const model::Vocabulary& vocabulary = *model.impl().vocabulary;
    if (!history.empty() && prompt.starts_with(history)) {
      return vocabulary.tokenize(std::string_view(prompt).substr(history.size()), model::Specials::kRecognise);
    }
    history.clear();
    Result<std::vector<std::int32_t>> all = vocabulary.tokenize(prompt, model::Specials::kRecogniseAndBegin);
    if (!all.ok() || all->empty()) return all;
    const std::vector<std::int32_t>& held = session->held();
    // The last token is always read: its logits are what the answer begins with.
    const auto common = std::mismatch(all->begin(), all->end() - 1, held.begin(), held.end()).first;
    NEVE_RETURN_IF_ERROR(session->truncate(common - all->begin()));
    return std::vector<std::int32_t>(common, all->end());
  }

  // Reads the prompt of all messages and writes the answer. Returns: whether there is an answer.
  Result<bool> turn(const GenerateCallbacks& callbacks, GenerateReport* report) {
    const Result<std::string> prompt = model.chat_prompt(messages);
    if (!prompt.ok()) return prompt.status();
    const Result<std::vector<std::int32_t>> tokens = new_tokens(*prompt);
    if (!tokens.ok()) return tokens.status();
    report->capacity_tokens = capacity_tokens;
    report->prompt_tokens = std::ssize(*tokens);
    report->memory = session->cache().memory();
    report->budget_bytes = report->memory.budget_bytes;
    if (callbacks.started) callbacks.started(*report);
    Result<bool> read = session->read(*tokens, callbacks, report);
    if (!read.ok() || !*read) return read;
    NEVE_RETURN_IF_ERROR(session->write(callbacks, report));
    messages.push_back({"assistant", session->written()});
    history = *prompt + session->written();
    return Result<bool>(true);
  }
};

Result<std::unique_ptr<ChatSession>> ChatSession::create(const Model& model, const GenerateOptions& options) {
  if (!model.has_chat_template()) {
    return Status(Code::kUnsupported, model.info().path + ": the file holds no chat template");
  }
  Result<std::unique_ptr<model::Session>> session = model::Session::create(model, options);
  if (!session.ok()) return session.status();
  const Result<CachePlan> plan = plan_cache(model.info().layers, options.cache, options.cache.max_tokens, 1);
  if (!plan.ok()) return plan.status();
  auto impl = std::unique_ptr<Impl>(new Impl{model, std::move(*session), plan->capacity_tokens, {}, {}});
  return std::unique_ptr<ChatSession>(new ChatSession(std::move(impl)));
}

ChatSession::ChatSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatSession::~ChatSession() = default;

void ChatSession::set_system(std::string text) {
  if (impl_->messages.empty()) impl_->messages.push_back({"system", std::move(text)});
}

Result<GenerateReport> ChatSession::say(std::string_view message, const GenerateCallbacks& callbacks) {
  const model::Session::Mark before = impl_->session->mark();
  const std::size_t messages = impl_->messages.size();
  impl_->messages.push_back({"user", std::string(message)});
  GenerateReport report;
  const Result<bool> answered = impl_->turn(callbacks, &report);
  if (!answered.ok() || !*answered) {
    impl_->messages.resize(messages);
    impl_->session->back_to(before);  // or, where the template rewrote: the next turn finds what is common
  }
  if (!answered.ok()) return answered.status();
  return report;
}

std::int64_t ChatSession::tokens() const { return std::ssize(impl_->session->held()); }

}  // namespace neve
