#include "model/gguf_check.h"

#include <gtest/gtest.h>

#include "model/edited_gguf.h"
#include "model/gguf_file.h"
#include "neve/model.h"

namespace neve::model {
namespace {

Status check_bytes(const ScratchFolder& folder, const std::string& bytes) {
  const std::string path = folder.file("x.gguf");
  write_bytes(path, bytes);
  return check_gguf(path);
}

void expect_one_clear_line(const Status& status, const std::string& part) {
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

TEST(GgufCheck, TakesAWholeFile) {
  const Status status = check_gguf(dense_model());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(GgufCheck, SaysWhatIsNotThere) {
  const ScratchFolder folder;
  EXPECT_EQ(check_gguf(folder.file("none.gguf")).code(), Code::kNotFound);
  EXPECT_EQ(check_gguf(folder.file("")).code(), Code::kNotFound);  // the folder itself
}

TEST(GgufCheck, RefusesWhatIsNotGguf) {
  const ScratchFolder folder;
  EXPECT_EQ(check_bytes(folder, "").code(), Code::kDamaged);
  const Status status = check_bytes(folder, "PK\x03\x04 and much more text than a header needs to begin with");
  EXPECT_EQ(status.code(), Code::kDamaged);
  expect_one_clear_line(status, "not a GGUF file: wanted 'GGUF' at byte 0, got 50 4b 03 04");
}

TEST(GgufCheck, RefusesOtherVersions) {
  const ScratchFolder folder;
  std::string bytes = read_bytes(dense_model());
  bytes[4] = 9;
  const Status status = check_bytes(folder, bytes);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  expect_one_clear_line(status, "wanted 2 or 3, got 9");
}

TEST(GgufCheck, RefusesEveryCut) {
  const ScratchFolder folder;
  const std::string bytes = read_bytes(dense_model());
  const auto header = static_cast<std::size_t>(GgufFile::open(dense_model()).value().header_bytes());
  std::vector<std::size_t> cuts = {header - 1, header, header + 1, bytes.size() / 2, bytes.size() - 1};
  for (std::size_t cut = 0; cut < header; cut += 41) cuts.push_back(cut);
  for (const std::size_t cut : cuts) {
    const Status status = check_bytes(folder, bytes.substr(0, cut));
    EXPECT_EQ(status.code(), Code::kDamaged) << "cut at " << cut;
    expect_one_clear_line(status, "GGUF file");
  }
}

TEST(GgufCheck, SaysWhereAFileEnds) {
  const ScratchFolder folder;
  const std::string bytes = read_bytes(dense_model());
  const Status status = check_bytes(folder, bytes.substr(0, bytes.size() - 1));
  expect_one_clear_line(status, "truncated: the last tensor, 'blk.5.ffn_down.weight', ends at byte " +
                                    std::to_string(bytes.size()) + ", the file has " +
                                    std::to_string(bytes.size() - 1));
}

TEST(GgufCheck, BoundsCounts) {
  const ScratchFolder folder;
  std::string bytes = read_bytes(dense_model());
  for (const std::size_t at : {8u, 16u}) {  // tensors, pairs
    std::string wild = bytes;
    std::memset(wild.data() + at, 0xff, 7);
    const Status status = check_bytes(folder, wild);
    EXPECT_EQ(status.code(), Code::kDamaged);
    expect_one_clear_line(status, "at byte " + std::to_string(at));
  }
}

// A flipped bit may leave a valid file, or be refused; it never ends the process, and what passes can be read by ggml.
TEST(GgufCheck, SurvivesFlippedBits) {
  const ScratchFolder folder;
  const std::string path = folder.file("flipped.gguf");
  const std::string bytes = read_bytes(dense_model());
  write_bytes(path, bytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto header = static_cast<std::size_t>(GgufFile::open(dense_model()).value().header_bytes());
  for (std::size_t at = 0; at < header; at += 5) {
    const auto put = [&](char value) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(value);
      file.flush();
    };
    put(static_cast<char>(bytes[at] ^ (1 << (at % 8))));
    const bool passes = check_gguf(path).ok();
    EXPECT_EQ(GgufFile::open(path).ok(), passes) << "byte " << at;
    put(bytes[at]);
  }
}

TEST(GgufCheckSlow, LoadsOrRefusesEveryFlippedByte) {
  const ScratchFolder folder;
  const std::string path = folder.file("flipped.gguf");
  const std::string bytes = read_bytes(dense_model());
  const auto header = static_cast<std::size_t>(GgufFile::open(dense_model()).value().header_bytes());
  LoadOptions options;
  options.threads = 1;
  for (std::size_t at = 0; at < header; at += 3) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    write_bytes(path, flipped);
    const Result<std::unique_ptr<Model>> model = Model::load(path, options);
    if (model.ok()) {
      EXPECT_TRUE((*model)->tokenize("Ein Wörtchen, 123", true).ok());
    } else {
      expect_one_clear_line(model.status(), path);
    }
  }
}

}  // namespace
}  // namespace neve::model
