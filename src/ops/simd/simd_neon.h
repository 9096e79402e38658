// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes on NEON: four registers. Included by *_neon.cc files only.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace lacuna::cpu::neon {
namespace {

struct f32x16 {
  float32x4_t v[4];
};
struct u32x16 {
  uint32x4_t v[4];
};

inline f32x16 set1(float a) {
  const float32x4_t v = vdupq_n_f32(a);
  return {{v, v, v, v}};
}
inline f32x16 zero() { return set1(0.0f); }
inline f32x16 load(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
inline void store(float* p, f32x16 v) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v.v[i]);
}
inline f32x16 load_n(const float* p, int n) {
  if (n >= 16) return load(p);
  float t[16] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}
inline void store_n(float* p, f32x16 v, int n) {
  if (n >= 16) return store(p, v);
  float t[16];
  store(t, v);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  for (int i = 0; i < 4; ++i) c.v[i] = vfmaq_f32(c.v[i], a.v[i], b.v[i]);
  return c;
}
inline f32x16 add(f32x16 a, f32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vaddq_f32(a.v[i], b.v[i]);
  return a;
}
inline f32x16 sub(f32x16 a, f32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vsubq_f32(a.v[i], b.v[i]);
  return a;
}
inline f32x16 mul(f32x16 a, f32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vmulq_f32(a.v[i], b.v[i]);
  return a;
}
inline f32x16 div(f32x16 a, f32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vdivq_f32(a.v[i], b.v[i]);
  return a;
}
// As x86's: the second operand when either is NaN or both are zero.
inline f32x16 max(f32x16 a, f32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
  return a;
}
inline f32x16 min(f32x16 a, f32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
  return a;
}

inline u32x16 load_u32(const void* p) {
  const auto* q = static_cast<const std::uint32_t*>(p);
  return {{vld1q_u32(q), vld1q_u32(q + 4), vld1q_u32(q + 8), vld1q_u32(q + 12)}};
}
inline void store_u32(void* p, u32x16 v) {
  for (int i = 0; i < 4; ++i) vst1q_u32(static_cast<std::uint32_t*>(p) + 4 * i, v.v[i]);
}
inline u32x16 set1_u32(std::uint32_t a) {
  const uint32x4_t v = vdupq_n_u32(a);
  return {{v, v, v, v}};
}
template <int N>
inline u32x16 shl(u32x16 v) {
  for (int i = 0; i < 4; ++i) v.v[i] = vshlq_u32(v.v[i], vdupq_n_s32(N));
  return v;
}
template <int N>
inline u32x16 shr(u32x16 v) {
  for (int i = 0; i < 4; ++i) v.v[i] = vshlq_u32(v.v[i], vdupq_n_s32(-N));
  return v;
}
inline u32x16 shr_n(u32x16 v, int n) {
  for (auto& part : v.v) part = vshlq_u32(part, vdupq_n_s32(-n));
  return v;
}
// table[index % 16], by bytes: those of entry i are 4i to 4i + 3.
inline f32x16 lookup16(const float* table, u32x16 index) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
  const uint8x16x4_t entries = {
      {vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  f32x16 r;
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t entry = vandq_u32(index.v[i], vdupq_n_u32(15));
    const uint32x4_t at = vaddq_u32(vmulq_n_u32(entry, 0x04040404u), vdupq_n_u32(0x03020100u));
    r.v[i] = vreinterpretq_f32_u8(vqtbl4q_u8(entries, vreinterpretq_u8_u32(at)));
  }
  return r;
}
inline u32x16 and_u32(u32x16 a, u32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vandq_u32(a.v[i], b.v[i]);
  return a;
}
inline u32x16 or_u32(u32x16 a, u32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vorrq_u32(a.v[i], b.v[i]);
  return a;
}
inline u32x16 add_u32(u32x16 a, u32x16 b) {
  for (int i = 0; i < 4; ++i) a.v[i] = vaddq_u32(a.v[i], b.v[i]);
  return a;
}
inline u32x16 and_or(u32x16 v, u32x16 mask, u32x16 bits) { return or_u32(and_u32(v, mask), bits); }
inline f32x16 as_f32(u32x16 v) {
  f32x16 r;
  for (int i = 0; i < 4; ++i) r.v[i] = vreinterpretq_f32_u32(v.v[i]);
  return r;
}
inline u32x16 as_u32(f32x16 v) {
  u32x16 r;
  for (int i = 0; i < 4; ++i) r.v[i] = vreinterpretq_u32_f32(v.v[i]);
  return r;
}
inline f32x16 to_f32(u32x16 v) {
  f32x16 r;
  for (int i = 0; i < 4; ++i) r.v[i] = vcvtq_f32_u32(v.v[i]);
  return r;
}
inline u32x16 widen_u16(const std::uint16_t* p) {
  const uint16x8_t a = vld1q_u16(p);
  const uint16x8_t b = vld1q_u16(p + 8);
  return {{vmovl_u16(vget_low_u16(a)), vmovl_high_u16(a), vmovl_u16(vget_low_u16(b)),
           vmovl_high_u16(b)}};
}
inline void narrow_u16(std::uint16_t* p, u32x16 v) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vmovn_u32(v.v[i]));
}
inline float reduce(f32x16 v) {
  const float32x4_t a = vaddq_f32(v.v[0], v.v[2]);
  const float32x4_t b = vaddq_f32(v.v[1], v.v[3]);
  const float32x4_t c = vaddq_f32(a, b);
  const float32x2_t d = vadd_f32(vget_low_f32(c), vget_high_f32(c));
  return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
inline std::uint32_t positive_mask(f32x16 v) {
  const uint32x4_t bits = {1, 2, 4, 8};
  std::uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    mask |= vaddvq_u32(vandq_u32(vcgtzq_f32(v.v[i]), bits)) << (4 * i);
  }
  return mask;
}
inline float reduce_max(f32x16 v) {
  const f32x16 a = max(v, {{v.v[2], v.v[3], v.v[0], v.v[1]}});
  return vmaxvq_f32(vmaxq_f32(a.v[0], a.v[1]));
}

}  // namespace
}  // namespace lacuna::cpu::neon
