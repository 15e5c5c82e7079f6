/*
 * Byte masks over 16 bytes: SSE2 on x86-64, NEON on aarch64. Where neither is
 * there, BT_SIMD is 0 and the callers go byte by byte.
 *
 * A mask has 1 << BT_SIMD_SHIFT bits of a uint64_t per byte, the lowest byte
 * first; bt_simd_first() gives the index of the first set one.
 */
#ifndef COMMON_BASE_SIMD_H
#define COMMON_BASE_SIMD_H

#include "common/base/base.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#define BT_SIMD       1
#define BT_SIMD_SHIFT 0
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#define BT_SIMD       1
#define BT_SIMD_SHIFT 2
#else
#define BT_SIMD 0
#endif

#if BT_SIMD
static inline size_t bt_simd_first(uint64_t mask)
{
    return (size_t)__builtin_ctzll(mask) >> BT_SIMD_SHIFT;
}

/* Without byte `index`. */
static inline uint64_t bt_simd_clear(uint64_t mask, size_t index)
{
    const uint64_t one = BT_SIMD_SHIFT == 0 ? 1 : 0xf;

    return mask & ~(one << (index << BT_SIMD_SHIFT));
}

/* Without byte `index` and the one behind it. */
static inline uint64_t bt_simd_clear2(uint64_t mask, size_t index)
{
    const uint64_t two = BT_SIMD_SHIFT == 0 ? 3 : 0xff;

    return mask & ~(two << (index << BT_SIMD_SHIFT));
}
#endif

/*
 * The bytes that end a plain run inside a JSON string are '"' (0x22), '\\'
 * and those below 0x20. With bit 1 flipped, '"' is 0x20 and the control bytes
 * stay below it: one comparison finds both.
 */
#if defined(__SSE2__)

static inline __m128i bt_simd_load(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static inline uint64_t bt_simd_json(const char *p)
{
    const __m128i v = bt_simd_load(p);
    const __m128i low = _mm_xor_si128(v, _mm_set1_epi8(2));
    const __m128i limit = _mm_min_epu8(low, _mm_set1_epi8(0x20));
    const __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(limit, low),
                                     _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));

    return (uint64_t)(unsigned)_mm_movemask_epi8(hit);
}

/* Is any of 64 bytes one of those? */
static inline bool bt_simd_json_any64(const char *p)
{
    const __m128i two = _mm_set1_epi8(2);
    const __m128i slash = _mm_set1_epi8('\\');
    const __m128i a = bt_simd_load(p);
    const __m128i b = bt_simd_load(p + 16);
    const __m128i c = bt_simd_load(p + 32);
    const __m128i d = bt_simd_load(p + 48);
    const __m128i low = _mm_min_epu8(
        _mm_min_epu8(_mm_xor_si128(a, two), _mm_xor_si128(b, two)),
        _mm_min_epu8(_mm_xor_si128(c, two), _mm_xor_si128(d, two)));
    const __m128i slashes = _mm_or_si128(
        _mm_or_si128(_mm_cmpeq_epi8(a, slash), _mm_cmpeq_epi8(b, slash)),
        _mm_or_si128(_mm_cmpeq_epi8(c, slash), _mm_cmpeq_epi8(d, slash)));
    const __m128i limit = _mm_min_epu8(low, _mm_set1_epi8(0x20));

    return _mm_movemask_epi8(
               _mm_or_si128(_mm_cmpeq_epi8(limit, low), slashes)) != 0;
}

/* Bytes that are not decimal digits. */
static inline uint64_t bt_simd_not_digit(const char *p)
{
    const __m128i v = _mm_sub_epi8(bt_simd_load(p), _mm_set1_epi8('0'));
    const __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(9)), v);

    return (uint64_t)(unsigned)_mm_movemask_epi8(digit) ^ 0xffff;
}

/* Is any of 64 bytes below 0x0e, as line ends are? */
static inline bool bt_simd_low_any64(const char *p)
{
    const __m128i low =
        _mm_min_epu8(_mm_min_epu8(bt_simd_load(p), bt_simd_load(p + 16)),
                     _mm_min_epu8(bt_simd_load(p + 32), bt_simd_load(p + 48)));
    const __m128i limit = _mm_min_epu8(low, _mm_set1_epi8(0x0d));

    return _mm_movemask_epi8(_mm_cmpeq_epi8(limit, low)) != 0;
}

/* Bytes that are a or b. */
static inline uint64_t bt_simd_either(const char *p, char a, char b)
{
    const __m128i v = bt_simd_load(p);
    const __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(a)),
                                     _mm_cmpeq_epi8(v, _mm_set1_epi8(b)));

    return (uint64_t)(unsigned)_mm_movemask_epi8(hit);
}

#elif BT_SIMD

static inline uint8x16_t bt_simd_load(const char *p)
{
    return vld1q_u8((const uint8_t *)p);
}

/* Four bits per byte. */
static inline uint64_t bt_simd_mask(uint8x16_t hit)
{
    const uint8x8_t narrow = vshrn_n_u16(vreinterpretq_u16_u8(hit), 4);

    return vget_lane_u64(vreinterpret_u64_u8(narrow), 0);
}

static inline uint8x16_t bt_simd_json_hit(uint8x16_t v)
{
    const uint8x16_t low = veorq_u8(v, vdupq_n_u8(2));

    return vorrq_u8(vcleq_u8(low, vdupq_n_u8(0x20)),
                    vceqq_u8(v, vdupq_n_u8('\\')));
}

static inline uint64_t bt_simd_json(const char *p)
{
    return bt_simd_mask(bt_simd_json_hit(bt_simd_load(p)));
}

/* Is any of 64 bytes one of those? */
static inline bool bt_simd_json_any64(const char *p)
{
    const uint8x16_t a = bt_simd_json_hit(bt_simd_load(p));
    const uint8x16_t b = bt_simd_json_hit(bt_simd_load(p + 16));
    const uint8x16_t c = bt_simd_json_hit(bt_simd_load(p + 32));
    const uint8x16_t d = bt_simd_json_hit(bt_simd_load(p + 48));

    return vmaxvq_u8(vorrq_u8(vorrq_u8(a, b), vorrq_u8(c, d))) != 0;
}

/* Bytes that are not decimal digits. */
static inline uint64_t bt_simd_not_digit(const char *p)
{
    const uint8x16_t v = vsubq_u8(bt_simd_load(p), vdupq_n_u8('0'));

    return bt_simd_mask(vcgtq_u8(v, vdupq_n_u8(9)));
}

/* Is any of 64 bytes below 0x0e, as line ends are? */
static inline bool bt_simd_low_any64(const char *p)
{
    const uint8x16_t low =
        vminq_u8(vminq_u8(bt_simd_load(p), bt_simd_load(p + 16)),
                 vminq_u8(bt_simd_load(p + 32), bt_simd_load(p + 48)));

    return vminvq_u8(low) < 0x0e;
}

/* Bytes that are a or b. */
static inline uint64_t bt_simd_either(const char *p, char a, char b)
{
    const uint8x16_t v = bt_simd_load(p);

    return bt_simd_mask(vorrq_u8(vceqq_u8(v, vdupq_n_u8((uint8_t)a)),
                                 vceqq_u8(v, vdupq_n_u8((uint8_t)b))));
}

#endif

#endif
