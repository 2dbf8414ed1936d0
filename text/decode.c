/* SPDX-License-Identifier: MIT
 * decode.c - tokens become text: the decoders of tokenizer.json, each a function of the list of all tokens'
 * texts. Called by api.c and stream.c. */
#include "text/decode.h"

#include <string.h>

#include "core/base/error.h"
#include "text/utf8.h"

/* ---- bytes as characters --------------------------------------------------------------------- */

/* GPT-2's table: what can be printed is itself, the others follow from U+0100 on. */
static int prints(unsigned c) {
  return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

uint32_t bs_tok_byte_character(unsigned char byte) {
  uint32_t skipped = 0;
  if (prints(byte)) return byte;
  if (byte <= 0x20) return 0x100u + byte;
  for (unsigned c = 0; c < byte; c++) skipped += !prints(c);
  return 0x100 + skipped;
}

int bs_tok_character_byte(uint32_t c) {
  if (c < 0x100) return prints(c) ? (int)c : -1;
  if (c <= 0x120) return (int)(c - 0x100);
  if (c <= 0x142) return (int)(c - 0x121 + 0x7f); /* 0x7f to 0xa0 */
  return c == 0x143 ? 0xad : -1;
}

static const char lost[] = "\xef\xbf\xbd"; /* U+FFFD */
enum { LOST = 3 };

/* Whether bytes that are no character may begin one: `good` of `left` bytes are right. */
static int may_begin(const char *bytes, size_t left, size_t good) {
  const unsigned char c = (unsigned char)bytes[0];
  return good == left && c >= 0xc2 && c <= 0xf4;
}

/* Bytes as text; what is no UTF-8 becomes U+FFFD, one for each part that begins a character. Returns 1 where
 * the last of them may still become a character. */
static int append_lossy(bs_text *out, const char *bytes, size_t n) {
  int unfinished = 0;
  for (size_t at = 0, good; at < n;) {
    const size_t step = bs_utf8_measure(bytes + at, n - at, &good);
    bs_text_append(out, step > 0 ? bytes + at : lost, step > 0 ? step : LOST);
    unfinished = step == 0 && may_begin(bytes + at, n - at, good);
    at += step > 0 ? step : good;
  }
  return unfinished;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A token whose characters all stand for bytes is those bytes, else its own. */
static void from_bytes(const bs_tok_list *in, bs_tok_work *w, bs_tok_list *out) {
  bs_text *raw = &w->text;
  raw->size = 0;
  for (size_t i = 0; i < in->n; i++) {
    const char *text = in->text.data + in->pieces[i].at;
    const size_t bytes = in->pieces[i].bytes, begin = raw->size;
    for (size_t at = 0, n; at < bytes; at += n) {
      const int byte = bs_tok_character_byte(bs_utf8_get(text + at, &n));
      if (byte < 0) {
        raw->size = begin;
        bs_text_append(raw, text, bytes);
        break;
      }
      const char c = (char)byte;
      bs_text_append(raw, &c, 1);
    }
  }
  if (raw->failed) out->failed = 1;
  if (raw->size > 0 && !raw->failed && append_lossy(&out->text, raw->data, raw->size)) w->held = LOST;
  bs_tok_list_keep(out, 0);
}

static int hex(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* The byte of <0x41>; -1: another token. */
static int fallback_byte(const char *text, size_t bytes) {
  if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || hex(text[4]) < 0) return -1;
  if (text[3] == '+') return hex(text[4]); /* from_str_radix of Rust takes a sign */
  return hex(text[3]) < 0 ? -1 : hex(text[3]) * 16 + hex(text[4]);
}

/* A run of byte tokens is one text, or U+FFFD for each of them where it is no UTF-8. */
static void end_run(bs_text *raw, bs_tok_work *w, bs_tok_list *out) {
  size_t at = 0, n = 1, good = 0, begin = out->text.size;
  for (; at < raw->size && n > 0; at += n) n = bs_utf8_measure(raw->data + at, raw->size - at, &good);
  if (n > 0 && raw->size > 0) {
    bs_text_append(&out->text, raw->data, raw->size);
    bs_tok_list_keep(out, begin);
  }
  if (n == 0) w->held = may_begin(raw->data + at, raw->size - at, good) ? raw->size * LOST : 0;
  for (size_t i = 0; n == 0 && i < raw->size; i++) {
    begin = out->text.size;
    bs_text_append(&out->text, lost, LOST);
    bs_tok_list_keep(out, begin);
  }
  raw->size = 0;
}

static void from_fallback(const bs_tok_list *in, bs_tok_work *w, bs_tok_list *out) {
  bs_text *raw = &w->text;
  raw->size = 0;
  for (size_t i = 0; i < in->n; i++) {
    const char *text = in->text.data + in->pieces[i].at;
    const int byte = fallback_byte(text, in->pieces[i].bytes);
    const char c = (char)byte;
    if (byte >= 0) {
      bs_text_append(raw, &c, 1);
      continue;
    }
    end_run(raw, w, out);
    w->held = 0;
    const size_t at = out->text.size;
    bs_text_append(&out->text, text, in->pieces[i].bytes);
    bs_tok_list_keep(out, at);
  }
  end_run(raw, w, out);
  if (raw->failed) out->failed = 1;
}

static void cut(const bs_tok_step *step, const char *text, size_t bytes, bs_text *out) {
  const size_t n = step->bytes;
  size_t begin = 0;
  for (uint64_t i = 0; i < step->begin && bytes - begin >= n && memcmp(text + begin, step->text, n) == 0; i++)
    begin += n;
  for (uint64_t i = 0; i < step->end && bytes >= begin + n && memcmp(text + bytes - n, step->text, n) == 0;
       i++)
    bytes -= n;
  bs_text_append(out, text + begin, bytes - begin);
}

/* BERT's spaces before punctuation and contractions, one rule after the other. The text is that of one token:
 * no rule's text meets another's. */
static void clean_up(bs_text *text, size_t from) {
  static const char *const rules[][2] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    const size_t old = strlen(rules[i][0]), new = strlen(rules[i][1]);
    size_t to = from;
    for (size_t at = from; at < text->size;) {
      if (text->size - at >= old && memcmp(text->data + at, rules[i][0], old) == 0) {
        memcpy(text->data + to, rules[i][1], new); /* never longer than the old text */
        to += new;
        at += old;
      } else {
        text->data[to++] = text->data[at++];
      }
    }
    text->size = to;
  }
}

static void from_word(const bs_tok_step *step, size_t i, const char *text, size_t bytes, bs_text *out) {
  const size_t from = out->size;
  if (i > 0 && bytes >= step->bytes && memcmp(text, step->text, step->bytes) == 0) {
    text += step->bytes;
    bytes -= step->bytes;
  } else if (i > 0) {
    bs_text_append(out, " ", 1);
  }
  bs_text_append(out, text, bytes);
  if ((step->flags & BS_TOK_CLEANUP) && !out->failed) clean_up(out, from);
}

static void from_metaspace(const bs_tok_step *step, size_t i, const char *text, size_t bytes, bs_text *out) {
  for (size_t at = 0, n; at < bytes; at += n) {
    bs_utf8_get(text + at, &n);
    if (n != step->bytes || memcmp(text + at, step->text, n) != 0)
      bs_text_append(out, text + at, n);
    else if (i > 0 || !(step->flags & BS_TOK_LEFT))
      bs_text_append(out, " ", 1);
  }
}

/* A step that works on each token alone. */
static int32_t each(const bs_tok_step *step, bs_tok_work *w, bs_error *err) {
  for (size_t i = 0; i < w->now.n; i++) {
    const bs_tok_piece *p = &w->now.pieces[i];
    const char *text = w->now.text.data + p->at;
    const size_t at = w->next.text.size;
    int32_t rc = BS_OK;
    if (step->kind == BS_TOK_CUT)
      cut(step, text, p->bytes, &w->next.text);
    else if (step->kind == BS_TOK_FROM_WORDS)
      from_word(step, i, text, p->bytes, &w->next.text);
    else if (step->kind == BS_TOK_FROM_METASPACE)
      from_metaspace(step, i, text, p->bytes, &w->next.text);
    else
      rc = bs_tok_rewrite(step, &w->matcher, text, p->bytes, 0, &w->next.text, err);
    if (rc != BS_OK) return rc;
    bs_tok_list_keep(&w->next, at);
  }
  return BS_OK;
}

int32_t bs_tok_decode(const bs_tokenizer *t, bs_tok_work *w, const int64_t *ids, uint64_t n, uint32_t flags,
                      bs_error *err) {
  int32_t rc = BS_OK;
  bs_tok_list_clear(&w->now);
  w->held = 0;
  for (uint64_t i = 0; i < n; i++) {
    size_t bytes = 0;
    const size_t at = w->now.text.size;
    const char *text = bs_tok_text(t, ids[i], &bytes);
    if (text == NULL)
      return bs_error_set(err, BS_INPUT, "BS-TOK-ID", "id %lld at place %llu is no token; there are 0 to %u",
                          (long long)ids[i], (unsigned long long)i, bs_tok_size(t) - 1);
    if (t->is_special[ids[i]] && !(flags & BS_DECODE_SPECIAL)) continue;
    if (t->shown != NULL && t->shown[ids[i]].data != NULL) {
      text = t->shown[ids[i]].data;
      bytes = t->shown[ids[i]].size;
    }
    if (t->no_decoder && w->now.n > 0) bs_text_append(&w->now.text, " ", 1);
    bs_text_append(&w->now.text, text, bytes);
    bs_tok_list_keep(&w->now, at);
  }
  bs_tok_work_limit(w, w->now.text.size);
  for (size_t i = 0; i < t->decoders.n && rc == BS_OK; i++) {
    const bs_tok_step *step = &t->decoders.at[i];
    bs_tok_list_clear(&w->next);
    if (step->kind == BS_TOK_FROM_BYTES) {
      from_bytes(&w->now, w, &w->next);
    } else if (step->kind == BS_TOK_FROM_FALLBACK) {
      from_fallback(&w->now, w, &w->next);
    } else if (step->kind == BS_TOK_FUSE) {
      bs_text_append(&w->next.text, w->now.text.data, w->now.text.size);
      bs_tok_list_keep(&w->next, 0);
    } else {
      rc = each(step, w, err);
    }
    const bs_tok_list list = w->now;
    w->now = w->next;
    w->next = list;
    if (rc == BS_OK) rc = bs_tok_list_check(&w->now, err);
    if (rc == BS_OK) rc = bs_tok_work_check(w, &w->now.text, err);
  }
  return rc == BS_OK ? bs_tok_list_check(&w->now, err) : rc;
}
