/* SPDX-License-Identifier: MIT
 * gguf_pre.c - the meaning of the names of tokenizer.ggml.pre: the normal form of a text, and the patterns
 * that split it, one after the other. Each row is the pre-tokenizer of the named model's tokenizer.json.
 * After the split the bytes of each piece become characters. A name without a row is refused. Called by
 * read_gguf.c. */
#include <string.h>

#include "text/read_gguf.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* The pattern of cl100k and its descendants. `digits` is how many digits make one piece. */
#define CL100K(digits)                           \
  SHORT_FORMS                                    \
  "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* The pattern of o200k: a word that changes case in the middle is two pieces. */
#define O200K(short_forms, digits)                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" short_forms "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
  "*" short_forms "|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define THREE_DIGITS "[0-9][0-9][0-9]"
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
/* DeepSeek's first models name their letters one by one: those that have cases. */
#define CASED                                                                                          \
  "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}" \
  "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-"       \
  "\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-"      \
  "\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-"     \
  "\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-"    \
  "\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"      \
  "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-"    \
  "\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-"    \
  "\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"       \
  "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"     \
  "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}"      \
  "\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-"    \
  "\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-"    \
  "\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"      \
  "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define WIDE_SIGNS "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define SPACE_AT_END "\\s+(?![\\s\\S])"
#define DEEPSEEK_V3                                                                                   \
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
  "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { NFC = BS_TOK_PRE_NFC, WHOLE = BS_TOK_PRE_WHOLE, BOS = BS_TOK_PRE_BOS };

static const bs_tok_pre rows[] = {
    {"default", 0, {SIGNS, GPT2, "\\p{N}+", THREE_DIGITS}},
    {"gpt-2", 0, {GPT2}},
    {"phi-2", 0, {GPT2}},
    {"mpt", NFC, {GPT2}},
    {"olmo", NFC, {GPT2}},
    {"starcoder", 0, {"\\p{N}", GPT2}},
    {"refact", 0, {"\\p{N}", GPT2}},
    {"smollm", 0, {"\\p{N}", GPT2}},
    {"command-r", NFC, {"\\p{N}", GPT2}},
    {"falcon", 0, {SIGNS, GPT2, THREE_DIGITS}},
    {"llama-bpe", WHOLE | BOS, {CL100K("{1,3}")}},
    {"llama3", WHOLE | BOS, {CL100K("{1,3}")}},
    {"llama-v3", WHOLE | BOS, {CL100K("{1,3}")}},
    {"dbrx", 0, {CL100K("{1,3}")}},
    {"qwen2", NFC, {CL100K("")}},
    {"gpt-4o", 0, {O200K(SHORT_FORMS "?", "{1,3}")}},
    {"tekken", WHOLE | BOS, {O200K("", "")}},
    {"deepseek-llm", 0, {"[\\r\\n]", CASED, WIDE_SIGNS, SPACE_AT_END, CJK, "\\p{N}"}},
    {"deepseek-coder", 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {"deepseek-v3", 0, {"\\p{N}{1,3}", KANA, DEEPSEEK_V3}},
};

const bs_tok_pre *bs_tok_pre_find(const char *name, size_t bytes) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (strlen(rows[i].name) == bytes && memcmp(rows[i].name, name, bytes) == 0) return &rows[i];
  return NULL;
}
