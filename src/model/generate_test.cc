#include "neve/generate.h"

#include <gtest/gtest.h>

#include "model/edited_gguf.h"

namespace neve {
namespace {

using model::dense_model;
using model::EditedGguf;
using model::ScratchFolder;

std::unique_ptr<Model> load(const std::string& path) {
  LoadOptions options;
  options.threads = 1;
  return Model::load(path, options).value();
}

class GenerateTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = load(dense_model()); }
  static void TearDownTestSuite() { model_.reset(); }

  static GenerateOptions options(const std::string& spec, std::int64_t tokens) {
    GenerateOptions options;
    options.cache.spec = *parse_kv_spec(spec);
    options.cache.max_tokens = 2048;
    options.new_tokens = tokens;
    options.at_end = AtEndToken::kContinue;
    return options;
  }
  static GenerateReport run(const GenerateOptions& options, const GenerateCallbacks& callbacks = {}) {
    const Result<GenerateReport> report = generate(*model_, kPrompt, options, callbacks);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : GenerateReport();
  }

  static constexpr const char* kPrompt = "Snow that outlasts a summer is ";
  static constexpr std::int64_t kPromptTokens = 31;
  static std::unique_ptr<Model> model_;
};
std::unique_ptr<Model> GenerateTest::model_;

TEST_F(GenerateTest, WritesAsManyTokensAsAskedFor) {
  std::string streamed;
  GenerateCallbacks callbacks;
  callbacks.text = [&](std::string_view piece) { streamed += piece; };
  const GenerateReport report = run(options("f16", 50), callbacks);
  EXPECT_EQ(report.finish, Finish::kLength);
  EXPECT_EQ(report.prompt_tokens, kPromptTokens);
  EXPECT_EQ(report.new_tokens, 50);
  EXPECT_EQ(report.text, streamed);
  EXPECT_FALSE(report.text.empty());
  EXPECT_EQ(report.steps.size(), 49u);  // the last token is not run
  EXPECT_EQ(report.budget_bytes, 0u);
  EXPECT_EQ(report.capacity_tokens, 2048);
  EXPECT_EQ(report.tokens_generated_by_rung.at_16, 50);
  EXPECT_GT(report.decode_tokens_per_s, 0);
  EXPECT_GT(report.prefill_tokens_per_s, 0);
  EXPECT_GT(report.step_ms_median, 0);
  EXPECT_LE(report.step_ms_median, report.step_ms_p99);
  EXPECT_LE(report.step_ms_p99, report.step_ms_p999);
}

TEST_F(GenerateTest, SeedsDecide) {
  GenerateOptions one = options("f16", 60), two = one;
  two.sampling.seed = 1;
  EXPECT_EQ(run(one).text, run(one).text);
  EXPECT_NE(run(one).text, run(two).text);
  one.sampling.temperature = two.sampling.temperature = 0;
  EXPECT_EQ(run(one).text, run(two).text);
}

// A budget that never fills changes nothing.
TEST_F(GenerateTest, ARoomyBudgetIsNoBudget) {
  GenerateOptions roomy = options("auto", 300);
  const std::string without = run(roomy).text;
  roomy.cache.budget_bytes = 64 << 20;
  const GenerateReport report = run(roomy);
  EXPECT_EQ(report.text, without);
  EXPECT_EQ(report.budget_bytes, 64u << 20);
  EXPECT_EQ(run(options("f16", 300)).text, without);
}

TEST_F(GenerateTest, StaysInsideTheBudgetAndEndsWithIt) {
  GenerateOptions tight = options("auto", 2000);
  tight.cache.budget_bytes = 1 << 20;
  std::int64_t promised = 0;
  GenerateCallbacks callbacks;
  callbacks.started = [&](const GenerateReport& report) { promised = report.capacity_tokens; };
  const GenerateReport report = run(tight, callbacks);
  EXPECT_EQ(report.finish, Finish::kBudget);
  EXPECT_LE(report.memory.peak_bytes, 1u << 20);
  EXPECT_EQ(report.capacity_tokens, promised);
  EXPECT_LT(promised, 2048);
  EXPECT_EQ(report.prompt_tokens + std::ssize(report.steps), promised);
  const auto& rungs = report.tokens_generated_by_rung;
  EXPECT_EQ(rungs.at_16 + rungs.at_8 + rungs.at_4 + rungs.at_2, report.new_tokens);
  EXPECT_GT(rungs.at_2, 0);
  EXPECT_GT(report.memory.demotions, 0u);
  const CacheMemory& memory = report.memory;
  EXPECT_EQ(memory.bytes, memory.bytes_16 + memory.bytes_8 + memory.bytes_4 + memory.bytes_2 + memory.bytes_free);
  EXPECT_GT(std::count_if(report.steps.begin(), report.steps.end(), [](const auto& s) { return s.closes_page; }), 2);
}

TEST_F(GenerateTest, AWidthMakesABudget) {
  GenerateOptions width = options("auto:4", 10);
  const GenerateReport report = run(width);
  const auto plan = plan_cache(model_->info().layers, width.cache, width.cache.max_tokens, 1);
  EXPECT_EQ(report.budget_bytes, plan->budget_bytes);
  EXPECT_EQ(report.budget_bytes, plan->f16_bytes / 4);
}

TEST_F(GenerateTest, RefusesABudgetBelowTheLeastAndNamesIt) {
  GenerateOptions tight = options("auto", 10);
  tight.cache.budget_bytes = 450'000;
  const std::string long_prompt(1500, 'x');
  const auto report = generate(*model_, long_prompt, tight);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kBudget);
  const auto least = plan_cache(model_->info().layers, tight.cache, 1500 + 128, 1)->least_bytes;
  EXPECT_NE(report.status().message().find(std::to_string(least)), std::string::npos) << report.status().message();
  tight.cache.budget_bytes = least;
  EXPECT_TRUE(generate(*model_, long_prompt, tight).ok());
}

TEST_F(GenerateTest, RefusesEmptyAndEndlessPrompts) {
  EXPECT_EQ(generate(*model_, std::string(3000, 'x'), options("f16", 1)).status().code(), Code::kInvalidArgument);
  GenerateOptions bad = options("f16", 1);
  bad.sampling.top_p = 0;
  EXPECT_EQ(generate(*model_, "x", bad).status().code(), Code::kInvalidArgument);
}

TEST_F(GenerateTest, TheContextEndsARun) {
  GenerateOptions endless = options("f16", -1);
  endless.cache.max_tokens = 100;
  const GenerateReport report = run(endless);
  EXPECT_EQ(report.finish, Finish::kLength);
  EXPECT_EQ(report.new_tokens, 100 - kPromptTokens + 1);
}

TEST_F(GenerateTest, AnEndTokenStops) {
  GenerateOptions stopping = options("f16", 2000);
  stopping.at_end = AtEndToken::kStop;
  stopping.sampling = {.temperature = 100.f, .top_k = 0, .top_p = 1.f, .min_p = 0.f, .seed = 3};  // 1 in 256 each
  const GenerateReport report = run(stopping);
  EXPECT_EQ(report.finish, Finish::kStop);
  EXPECT_LT(report.new_tokens, 2000);
}

TEST_F(GenerateTest, TextIsWholeCharacters) {
  GenerateOptions wild = options("f16", 300);
  wild.sampling = {.temperature = 100.f, .top_k = 0, .top_p = 1.f, .min_p = 0.f, .seed = 3};  // random bytes
  GenerateCallbacks callbacks;
  callbacks.text = [](std::string_view piece) {
    EXPECT_FALSE(piece.empty());
    EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xC0u, 0x80u);  // never the rest of a character
  };
  EXPECT_NE(run(wild, callbacks).text.find("\uFFFD"), std::string::npos);
}

TEST_F(GenerateTest, CanBeCancelled) {
  int asked = 0;
  GenerateCallbacks callbacks;
  callbacks.cancelled = [&] { return ++asked > 10; };
  const GenerateReport during = run(options("f16", 500), callbacks);
  EXPECT_EQ(during.finish, Finish::kCancelled);
  EXPECT_EQ(during.new_tokens, 10);
  callbacks.cancelled = [] { return true; };
  const GenerateReport before = run(options("f16", 500), callbacks);
  EXPECT_EQ(before.finish, Finish::kCancelled);
  EXPECT_EQ(before.prompt_tokens, 0);
  EXPECT_EQ(before.new_tokens, 0);
}

TEST_F(GenerateTest, PromptsAreReadInChunks) {
  std::vector<std::int64_t> done;
  GenerateCallbacks callbacks;
  callbacks.prefill = [&](std::int64_t so_far, std::int64_t all) {
    done.push_back(so_far);
    EXPECT_EQ(all, 1300);
  };
  EXPECT_TRUE(generate(*model_, std::string(1300, 'x'), options("f16", 1), callbacks).ok());
  EXPECT_EQ(done, (std::vector<std::int64_t>{512, 1024, 1300}));
}

// ---- chat ------------------------------------------------------------------------------------------------------------

class ChatTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<ScratchFolder>();
    EditedGguf edited(dense_model());
    edited.text("tokenizer.chat_template",
                "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}");
    model_ = load(edited.write(folder_->file("chat.gguf")));
  }
  static void TearDownTestSuite() {
    model_.reset();
    folder_.reset();
  }
  std::unique_ptr<ChatSession> make(std::int64_t tokens = 20) {
    GenerateOptions options;
    options.cache.spec = *parse_kv_spec("f16");
    options.new_tokens = tokens;
    options.at_end = AtEndToken::kContinue;
    return ChatSession::create(*model_, options).value();
  }
  static GenerateReport say(ChatSession* chat, const std::string& text) {
    const auto report = chat->say(text);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : GenerateReport();
  }

  static std::unique_ptr<ScratchFolder> folder_;
  static std::unique_ptr<Model> model_;
};
std::unique_ptr<ScratchFolder> ChatTest::folder_;
std::unique_ptr<Model> ChatTest::model_;

TEST_F(ChatTest, ReadsOnlyWhatIsNew) {
  const auto chat = make();
  const std::string first = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(say(chat.get(), "hello").prompt_tokens, std::ssize(first));
  EXPECT_EQ(chat->tokens(), std::ssize(first) + 19);  // the last token of the answer waits for the next turn
  const std::string second = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(say(chat.get(), "more").prompt_tokens, std::ssize(second) + 1);
  EXPECT_EQ(chat->tokens(), std::ssize(first) + 20 + std::ssize(second) + 19);
}

TEST_F(ChatTest, StartsWithTheSystem) {
  const auto chat = make();
  chat->set_system("be brief");
  const std::string prompt =
      "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(say(chat.get(), "hello").prompt_tokens, std::ssize(prompt));
}

// A turn that was cancelled while it was read leaves the conversation as it was.
TEST_F(ChatTest, ACancelledTurnDidNotHappen) {
  const auto chat = make(), other = make();
  say(chat.get(), "hello");
  say(other.get(), "hello");
  GenerateCallbacks callbacks;
  callbacks.cancelled = [] { return true; };
  const auto cancelled = chat->say("never heard", callbacks);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->finish, Finish::kCancelled);
  EXPECT_EQ(chat->tokens(), other->tokens());
  EXPECT_EQ(say(chat.get(), "more").text, say(other.get(), "more").text);
}

TEST_F(ChatTest, NeedsATemplate) {
  const auto plain = load(dense_model());
  EXPECT_EQ(ChatSession::create(*plain, {}).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace neve
