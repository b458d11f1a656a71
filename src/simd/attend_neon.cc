// Decode-attention kernels for NEON with the dot product instructions of ARMv8.2.
//
// `sdot` multiplies signed bytes. Codes of 4 and 2 bits are small enough to be signed. Those of 8 bits become code - 128
// by their top bit flipped, and 128 times the sum of the other operand is what the sums begin with.
#include <arm_neon.h>

#include "simd/attend_kernels.h"

namespace neve::simd {
namespace {

struct Dot {
  using Codes = int8x16_t;
  using Words = int8x16_t;
  using Sums = int32x4_t;
  static constexpr int kBytes = 16, kWords = 4, kScoreSums = 20, kWeighSums = 16;

  template <int Bits, int Accs>
  struct Parts {
    // A factor of 2^kShift is what masking without a shift leaves; the topmost lane would be negative and is shifted.
    static constexpr int kShift[4] = {0, Bits == 2 ? 2 : 0, 4, 0};
    Codes part[8 / Bits];
    explicit Parts(Codes codes) {
      const uint8x16_t x = vreinterpretq_u8_s8(codes);
      if constexpr (Bits == 8) {
        part[0] = vreinterpretq_s8_u8(veorq_u8(x, vdupq_n_u8(128)));
      } else if constexpr (Bits == 4) {
        part[0] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(15)));
        part[1] = vreinterpretq_s8_u8(vshrq_n_u8(x, 4));
      } else if constexpr (Accs == 4) {
        part[0] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(3)));
        part[1] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(12)));
        part[2] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(48)));
        part[3] = vreinterpretq_s8_u8(vshrq_n_u8(x, 6));
      } else if constexpr (Accs == 1) {
        part[0] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(3)));
        part[1] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(x, 2), vdupq_n_u8(3)));
        part[2] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(x, 4), vdupq_n_u8(3)));
        part[3] = vreinterpretq_s8_u8(vshrq_n_u8(x, 6));
      } else {
        static_assert(Accs == 2);
        const uint8x16_t high = vshrq_n_u8(x, 4);
        part[0] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(3)));
        part[1] = vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(12)));
        part[2] = vreinterpretq_s8_u8(vandq_u8(high, vdupq_n_u8(3)));
        part[3] = vreinterpretq_s8_u8(vandq_u8(high, vdupq_n_u8(12)));
      }
    }
  };

  static Codes load(const std::uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
  static Codes load_first(const std::uint8_t* p, int) { return load(p); }  // channels are a multiple of 4
  static Words word(const std::int8_t* p) {
    std::int32_t x;
    __builtin_memcpy(&x, p, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(x));
  }
  static Sums dot(Sums sums, Codes codes, Words words) { return vdotq_s32(sums, codes, words); }
  static Sums add(Sums a, Sums b) { return vaddq_s32(a, b); }
  static Sums shift_right(Sums sums, int n) { return vshlq_s32(sums, vdupq_n_s32(-n)); }
  static constexpr bool kSigned = true;
  static std::int32_t sum_of(const std::int8_t* row, int n) {
    Sums sum = vdupq_n_s32(0);
    for (int i = 0; i < n; i += 4) sum = dot(sum, vdupq_n_s8(1), word(row + i));
    return vgetq_lane_s32(sum, 0);
  }
  static Sums broadcast(std::int32_t x) { return vdupq_n_s32(x); }
  template <bool Two>
  static void store_dot(float* at, int, Sums hi, Sums lo, float scale) {
    float32x4_t x = vcvtq_f32_s32(hi);
    if constexpr (Two) x = vfmaq_f32(vcvtq_f32_s32(lo), x, vdupq_n_f32(128.f));
    vst1q_f32(at, vfmaq_f32(vld1q_f32(at), x, vdupq_n_f32(scale)));
  }
  static void prefetch(const std::uint8_t* p) { __builtin_prefetch(p); }
};

#include "simd/attend_dot_body.inc"

struct Lanes {
  using Vector = float32x4_t;
  using Ints = int32x4_t;
  static constexpr int kCount = 4, kDots = 16, kWeighChunks = 4;
  static Vector load(const float* p) { return vld1q_f32(p); }
  static Vector load_first(const float* p, int n) {
    float x[4] = {};
    for (int i = 0; i < n; ++i) x[i] = p[i];
    return vld1q_f32(x);
  }
  static void store(float* p, Vector v) { vst1q_f32(p, v); }
  static void store_first(float* p, int n, Vector v) {
    float x[4];
    vst1q_f32(x, v);
    for (int i = 0; i < n; ++i) p[i] = x[i];
  }
  static Vector zero() { return vdupq_n_f32(0.f); }
  static Vector broadcast(float x) { return vdupq_n_f32(x); }
  static Vector add(Vector a, Vector b) { return vaddq_f32(a, b); }
  static Vector sub(Vector a, Vector b) { return vsubq_f32(a, b); }
  static Vector mul(Vector a, Vector b) { return vmulq_f32(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static Vector max(Vector a, Vector b) { return vmaxq_f32(a, b); }
  static Vector max_abs(Vector a, Vector b) { return vmaxq_f32(a, vabsq_f32(b)); }
  static float reduce_add(Vector v) { return vaddvq_f32(v); }
  static float reduce_max(Vector v) { return vmaxvq_f32(v); }
  static Vector load_f16(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static Vector load_f16_first(const std::uint16_t* p, int n) {
    std::uint16_t x[4] = {};
    for (int i = 0; i < n; ++i) x[i] = p[i];
    return load_f16(x);
  }
  static Ints round(Vector v) { return vcvtnq_s32_f32(v); }
  static Vector to_float(Ints x) { return vcvtq_f32_s32(x); }
  static int16x8_t high_half(int16x8_t x) { return vshrq_n_s16(vaddq_s16(x, vdupq_n_s16(64)), 7); }
  static int16x8_t low_half(int16x8_t x, int16x8_t high) { return vsubq_s16(x, vshlq_n_s16(high, 7)); }
  static int8x16_t narrow(int16x8_t a, int16x8_t b) { return vcombine_s8(vmovn_s16(a), vmovn_s16(b)); }
  static int16x8_t narrow(Ints a, Ints b) { return vcombine_s16(vmovn_s32(a), vmovn_s32(b)); }
  static void split(const Ints* x, std::int8_t* hi, std::int8_t* lo, Ints& total) {
    const int16x8_t a = narrow(x[0], x[1]), b = narrow(x[2], x[3]);
    const int16x8_t high_a = high_half(a), high_b = high_half(b);
    vst1q_s8(hi, narrow(high_a, high_b));
    vst1q_s8(lo, narrow(low_half(a, high_a), low_half(b, high_b)));
    total = vpadalq_s16(vpadalq_s16(total, a), b);
  }
  static void pack(const Ints* x, std::int8_t* hi, Ints& total) {
    const int16x8_t a = narrow(x[0], x[1]), b = narrow(x[2], x[3]);
    vst1q_s8(hi, narrow(a, b));
    total = vpadalq_s16(vpadalq_s16(total, a), b);
  }
  static void sum_of_four(const Vector* v, float* out) { vst1q_f32(out, sums(v)); }
  static void max_of_four(const Vector* v, float* out) {
    vst1q_f32(out, vpmaxq_f32(vpmaxq_f32(v[0], v[1]), vpmaxq_f32(v[2], v[3])));
  }
  static Vector sums(const Vector* v) { return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])); }
  // exp(x) = 2^k * exp(r), |r| <= ln(2)/2, ln(2) in two parts. The polynomial is the best of degree 5 that begins with
  // 1 + r: off by 1.05e-7. 2^k in two factors: the results down to the smallest subnormal are right.
  static Vector exp_of(Vector x) {
    x = vmaxq_f32(x, vdupq_n_f32(-105.f));
    const Vector k = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504f)));
    Vector r = vfmsq_f32(x, k, vdupq_n_f32(0.693359375f));
    r = vfmsq_f32(r, k, vdupq_n_f32(-2.12194440e-4f));
    Vector p = vdupq_n_f32(8.312501289e-3f);
    p = vfmaq_f32(vdupq_n_f32(4.189033157e-2f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.666711539e-1f), p, r);
    p = vfmaq_f32(vdupq_n_f32(4.999923031e-1f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.f), p, r);
    const Ints power = vcvtnq_s32_f32(k), half = vshrq_n_s32(power, 1);
    p = vmulq_f32(p, power_of_two(half));
    return vmulq_f32(p, power_of_two(vsubq_s32(power, half)));
  }
  static Vector power_of_two(Ints k) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(k, vdupq_n_s32(127)), 23)); }
};

#include "simd/attend_float_body.inc"

}  // namespace

const AttendKernels kAttendNeon = {score_codes, weigh_codes, fold_keys, fold_values,
                                   score_f16,   weigh_f16,   max,       exp_sum};

}  // namespace neve::simd
