// What decode does with one coded page: scores of its keys, and its values weighed, for the query heads of one KV head.
//
// Codes are read with integer dots and never expanded. Scales are folded into the queries (keys, per channel), into the
// scores (keys, per token) or into the softmax weights (values), which are then quantised to 8 or 15 bits.
// Thread rules: a DecodeQuery belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/page_view.h"
#include "kv/shape.h"
#include "simd/isa.h"

namespace neve::kv {

// The query heads of one item and the memory that pages share. `heads` query heads read one KV head.
struct DecodeQuery {
  const simd::AttendKernels* attend = nullptr;
  const simd::CodingKernels* coding = nullptr;
  Shift shift = Shift::kEquivalent;
  float clip = 1.f;
  int heads = 0;
  std::ptrdiff_t query_stride = 0;  // padded key channels
  std::ptrdiff_t value_stride = 0;  // padded value channels
  std::ptrdiff_t score_stride = 0;
  float* queries = nullptr;         // [heads][query_stride], times the layer's scale
  float* stored_queries = nullptr;  // the same in stored channel order
  float* scores = nullptr;          // [heads][score_stride]; 128 of each page, one page after another
  float* out = nullptr;             // [heads][value_stride], of 16-bit pages
  float* coded_out = nullptr;       // [heads][value_stride], of coded pages, rotated if values are
  float* value_offset = nullptr;    // [value groups][heads]: what every channel of a group still gets
  float* weight_sum = nullptr;      // [heads], of all weights of the item
  float* raw = nullptr;             // [heads][128]
  std::int8_t* hi = nullptr;        // [heads][max(query_stride, 128)]
  std::int8_t* lo = nullptr;
  float* scale = nullptr;   // [key runs][heads]
  float* offset = nullptr;  // [heads]

  // Takes all arrays from `floats`, grown as needed; `scores` has room for scores_n numbers a head.
  void allocate(const quant::KeyLayout& keys, const quant::ValueLayout& values, std::size_t scores_n,
                std::vector<float>* floats);
};

// scores: of head 0, 128 of them written. prefetch: codes that are read next, or null.
void score_coded_keys(const DecodeQuery& query, const quant::KeyLayout& layout, const BlockView& keys, float* scores,
                      const std::uint8_t* prefetch);

// weights: of head 0, 128 of them. Adds to coded_out and value_offset.
void weigh_coded_values(const DecodeQuery& query, const quant::ValueLayout& layout, const BlockView& values,
                        const float* weights, const std::uint8_t* prefetch);

}  // namespace neve::kv
