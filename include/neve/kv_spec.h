// What `--kv` says: how the keys and values of attention layers are held. One spec, one cache.
//
//   f16 int8 int4 int2         fixed width, keys per channel, values per token
//   graded:W                   fixed mean width W (2..8) with graded keys and rotated, clipped values
//   pm:8 pm:4 pm:2             PM-KVQ's ladder 16 -> 8 -> 4 -> 2 to that final width, a layer at a time
//   auto                       graded ladder, page by page, inside --budget (16 bit without one)
//   auto:W                     a budget of W/16 of what the 16-bit cache of the context asked for holds
//   llama:f16|q8_0|q4_0        llama.cpp's own cache (a peer; only `eval` and `bench` run it)
//
// Options follow after a colon, comma separated: `pm:4:shift=direct,group=64,sinks=1,window=128,top=int16`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "neve/status.h"

namespace neve {

enum class KvMode { kF16, kFixed, kGraded, kPaper, kAuto, kPeer };

// How an 8- or 4-bit code becomes a 4- or 2-bit one. kEquivalent rounds exactly (PM-KVQ app. D); kDirect and
// kModified are the paper's worse ones, for its ablation; kClipped is equivalent 8 -> 4 and clipped 4 -> 2.
enum class Shift { kEquivalent, kDirect, kModified, kClipped };

// What a token holds before its page is coded to 8 bits or less. kInt16 is the paper's choice.
enum class TopRung { kF16, kInt16 };

enum class Demote { kPage, kLayer };

struct KvSpec {
  KvMode mode = KvMode::kAuto;
  std::string text = "auto";  // as typed
  int bits = 16;              // kFixed: 8, 4, 2; kPaper: final width
  double width = 0;           // kGraded: W; kAuto: W of auto:W, 0 without
  std::string peer_type;      // kPeer: "f16", "q8_0", "q4_0"
  Shift shift = Shift::kEquivalent;
  TopRung top = TopRung::kF16;
  int group = 128;     // largest group of channels (per-token groups), clipped to the head size
  int sinks = 4;       // first tokens kept at 16 bit
  int window = 128;    // at least this many recent tokens at 16 bit
  double clip = 0.85;  // factor c of the clipped shift
};

// Errors: kInvalidArgument names the part that is wrong and lists what is understood; kUnsupported for the
// comparisons that are not built yet.
Result<KvSpec> parse_kv_spec(std::string_view text);

// Splits "a,b:x=1,y=2,c" into specs: a comma inside the options of one spec belongs to it.
Result<std::vector<KvSpec>> parse_kv_specs(std::string_view list);

// "16MiB", "2GiB", "100kB", "12345" (bytes) -> bytes. Errors: kInvalidArgument.
Result<unsigned long long> parse_bytes(std::string_view text);

// 16777216 -> "16.0 MiB".
std::string format_bytes(unsigned long long bytes);

}  // namespace neve
