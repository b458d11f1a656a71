#include "neve/model.h"

#include <gtest/gtest.h>

#include "model/edited_gguf.h"

namespace neve {
namespace {

using model::dense_model;
using model::EditedGguf;
using model::ScratchFolder;

Result<std::unique_ptr<Model>> load(const std::string& path, Weights weights = Weights::kFile) {
  LoadOptions options;
  options.threads = 1;
  options.weights = weights;
  return Model::load(path, options);
}
void expect_refused(const std::string& path, Code code, const std::string& why) {
  const auto model = load(path);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_NE(model.status().message().find(why), std::string::npos) << model.status().message();
  EXPECT_EQ(model.status().message().find('\n'), std::string::npos) << model.status().message();
}

TEST(ModelInfo, IsReadFromTheHeader) {
  const Result<ModelInfo> info = read_model_info(dense_model());
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->name, "neve tiny dense");
  EXPECT_EQ(info->architecture, "qwen3");
  EXPECT_EQ(info->vocabulary, 256);
  EXPECT_EQ(info->hidden, 256);
  EXPECT_EQ(info->layers.size(), 6u);
  EXPECT_EQ(info->fingerprint.size(), 16u);
  EXPECT_GT(info->weights_bytes, 4'000'000);
}

TEST(ModelInfo, FingerprintTellsWeightsApart) {
  const ScratchFolder folder;
  const std::string path = folder.file("x.gguf"), bytes = model::read_bytes(dense_model());
  model::write_bytes(path, bytes);
  const std::string same = read_model_info(path)->fingerprint;
  EXPECT_EQ(same, read_model_info(dense_model())->fingerprint);  // whatever the file is called
  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);  // the last weight of the last tensor
  model::write_bytes(path, changed);
  EXPECT_NE(read_model_info(path)->fingerprint, same);
}

TEST(ModelLoad, MapsWeightsAndCountsThem) {
  const auto model = load(dense_model());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->threads(), 1);
  const std::int64_t all = (*model)->info().weights_bytes;
  EXPECT_GE((*model)->mapped_bytes() + (*model)->copied_bytes(), all);
  EXPECT_LE((*model)->mapped_bytes(), all);
}

TEST(ModelLoad, ReportsProgress) {
  std::vector<double> seen;
  LoadOptions options;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(Model::load(dense_model(), options).ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(ModelLoad, RefusesUnfitFiles) {
  const ScratchFolder folder;
  EXPECT_EQ(load(folder.file("none.gguf")).status().code(), Code::kNotFound);
  const std::string path = folder.file("x.gguf");
  EditedGguf missing(dense_model());
  expect_refused(missing.drop("blk.3.ffn_up").write(path), Code::kDamaged, "'blk.3.ffn_up.weight' is missing");
  EditedGguf narrow(dense_model());
  narrow.u32("qwen3.feed_forward_length", 512);
  expect_refused(narrow.write(path), Code::kDamaged, "wanted shape [256, 512], got [256, 640]");
  // A tensor that the graph would leave out would make another model of it.
  EditedGguf more(dense_model());
  expect_refused(more.add_vector("blk.0.attn_sinks.weight", 4, 0.f, 1.f).write(path), Code::kUnsupported,
                 "'blk.0.attn_sinks.weight' is none that neve knows");
  EditedGguf parts(dense_model());
  gguf_set_val_u16(parts.keys(), "split.count", 3);
  expect_refused(parts.write(path), Code::kUnsupported, "one of 3 parts of a split model");
  EditedGguf words(dense_model());
  expect_refused(words.text("tokenizer.ggml.model", "t5").write(path), Code::kUnsupported, "tokenizer 't5'");
}

TEST(ModelLoad, RefusesVocabulariesThatLlamaWouldAbortOn) {
  const ScratchFolder folder;
  std::vector<const char*> tokens(256, "same");
  EditedGguf twice(dense_model());
  gguf_set_arr_str(twice.keys(), "tokenizer.ggml.tokens", tokens.data(), tokens.size());
  expect_refused(twice.write(folder.file("twice.gguf")), Code::kDamaged, "token 'same' comes twice");
  EditedGguf few(dense_model());
  gguf_set_arr_str(few.keys(), "tokenizer.ggml.tokens", tokens.data(), 1);
  expect_refused(few.write(folder.file("few.gguf")), Code::kDamaged, "wanted 256 tokens");
}

// Terabytes of zeros in a sparse file: said before anything is loaded.
TEST(ModelLoad, SaysWhenWeightsDoNotFitIntoMemory) {
  const ScratchFolder folder;
  const std::string path = folder.file("huge.gguf");
  EditedGguf huge(dense_model());
  if (!huge.write_sparse(path, std::int64_t{1} << 31)) GTEST_SKIP() << "no sparse files of this size here";
  EXPECT_GT(read_model_info(path)->weights_bytes, std::int64_t{1} << 43);
  expect_refused(path, Code::kExhausted, "too large for this machine: the weights take 9.");
}

TEST(ModelF32, ConvertsOnceAndKeepsTheFingerprint) {
  const ScratchFolder folder;
  setenv("NEVE_CACHE", folder.file("cache").c_str(), 1);
  const auto stored = load(dense_model());
  const auto f32 = load(dense_model(), Weights::kF32);
  ASSERT_TRUE(f32.ok()) << f32.status().message();
  EXPECT_EQ((*f32)->info().fingerprint, (*stored)->info().fingerprint);
  EXPECT_EQ((*f32)->info().path, dense_model());
  EXPECT_GT((*f32)->mapped_bytes() + (*f32)->copied_bytes(), 3 * (*stored)->info().weights_bytes);
  const std::filesystem::path kept = folder.file("cache/f32/" + (*f32)->info().fingerprint + ".gguf");
  ASSERT_TRUE(std::filesystem::exists(kept));
  const auto written = std::filesystem::last_write_time(kept);
  ASSERT_TRUE(load(dense_model(), Weights::kF32).ok());
  EXPECT_EQ(std::filesystem::last_write_time(kept), written);
  const std::filesystem::directory_iterator files(folder.file("cache/f32"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // nothing half-made beside it
  unsetenv("NEVE_CACHE");
}

TEST(ModelWords, BytesComeBack) {
  const auto model = load(dense_model());
  const std::string text = "Schnee, \u00e9 \U0001F600 \xff\n";
  const auto tokens = (*model)->tokenize(text, false);
  ASSERT_TRUE(tokens.ok());
  std::string back;
  for (const std::int32_t token : *tokens) back += (*model)->token_text(token);
  EXPECT_EQ(back.substr(0, 8), "Schnee, ");
  EXPECT_TRUE((*model)->is_end(0));
  EXPECT_FALSE((*model)->is_end(65));
  EXPECT_EQ((*model)->token_text(-1), "");
  EXPECT_EQ((*model)->token_text(256), "");
}

TEST(ModelWords, ChatTemplate) {
  const auto plain = load(dense_model());
  EXPECT_FALSE((*plain)->has_chat_template());
  const Model::Message hello[] = {{"user", "hello"}};
  EXPECT_EQ((*plain)->chat_prompt(hello).status().code(), Code::kUnsupported);
  const ScratchFolder folder;
  EditedGguf edited(dense_model());
  edited.text("tokenizer.chat_template",
              "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}");
  const auto model = load(edited.write(folder.file("chat.gguf")));
  ASSERT_TRUE((*model)->has_chat_template());
  EXPECT_EQ(*(*model)->chat_prompt(hello), "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
  const Model::Message wrong[] = {{"tool", "x"}};
  EXPECT_EQ((*model)->chat_prompt(wrong).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace neve
