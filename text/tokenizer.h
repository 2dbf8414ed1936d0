/* SPDX-License-Identifier: MIT
 * tokenizer.h - a tokenizer as it was read: steps that change text, steps that split it, a model that makes
 * ids of pieces, ids around them, and steps that make text of tokens. */
#ifndef BS_TEXT_TOKENIZER_H
#define BS_TEXT_TOKENIZER_H
#include "blockshock/text.h"
#include "text/pattern.h"
#include "text/vocab.h"

/* ---- a text in pieces ------------------------------------------------------------------------ */

typedef struct bs_tok_piece {
  size_t at, bytes;
  uint32_t id;  /* an added token; BS_TOK_NONE: text */
  int is_first; /* the text of the caller begins here */
} bs_tok_piece;

typedef struct bs_tok_list {
  bs_text text;
  bs_tok_piece *pieces;
  size_t n, room;
  int failed; /* out of memory */
} bs_tok_list;

/* Adds a piece of list->text, unless it is empty. */
void bs_tok_list_add(bs_tok_list *list, size_t at, size_t bytes, uint32_t id, int is_first);
/* Adds what was appended to list->text from `at` on, unless it is empty; and even when it is. */
void bs_tok_list_end(bs_tok_list *list, size_t at, uint32_t id, int is_first);
void bs_tok_list_keep(bs_tok_list *list, size_t at);
void bs_tok_list_clear(bs_tok_list *list);
void bs_tok_list_free(bs_tok_list *list);
/* BS_NO_MEMORY where a list or its text failed. */
int32_t bs_tok_list_check(const bs_tok_list *list, bs_error *err);

/* ---- steps ----------------------------------------------------------------------------------- */

enum bs_tok_step_kind {
  /* Text becomes other text (rewrite.c). */
  BS_TOK_NFC = 1,
  BS_TOK_NFD,
  BS_TOK_NFKC,
  BS_TOK_NFKD,
  BS_TOK_LOWERCASE,
  BS_TOK_STRIP,         /* flags BS_TOK_LEFT, BS_TOK_RIGHT */
  BS_TOK_STRIP_ACCENTS, /* all marks; flag BS_TOK_NONSPACING: those alone */
  BS_TOK_REPLACE,       /* pattern by text */
  BS_TOK_PREPEND,       /* text; flags BS_TOK_UNLESS_THERE, BS_TOK_ONLY_FIRST */
  BS_TOK_CLEAN,         /* of BERT: no control characters, every white space is a blank */
  BS_TOK_CHINESE,       /* of BERT: blanks around ideographs */
  BS_TOK_BYTES,         /* each byte becomes the character that stands for it */
  /* Pieces become more pieces (split.c). */
  BS_TOK_SPLIT, /* at a pattern; flag BS_TOK_INVERTED, `split` */
  /* Tokens become text (decode.c). */
  BS_TOK_FROM_BYTES,    /* BS_TOK_BYTES undone, in one text */
  BS_TOK_FROM_FALLBACK, /* <0x41> is a byte */
  BS_TOK_FUSE,          /* one text */
  BS_TOK_CUT,           /* the character `text`, at most `begin` and `end` of them */
  BS_TOK_FROM_WORDS,    /* WordPiece: text is the prefix; flag BS_TOK_CLEANUP */
  BS_TOK_FROM_METASPACE /* text is the blank's place; flag BS_TOK_LEFT: the first token loses it */
};
enum bs_tok_step_flag {
  BS_TOK_LEFT = 1,
  BS_TOK_RIGHT = 2,
  BS_TOK_NONSPACING = 4,
  BS_TOK_UNLESS_THERE = 8,
  BS_TOK_ONLY_FIRST = 16,
  BS_TOK_INVERTED = 32,
  BS_TOK_CLEANUP = 64
};
enum bs_tok_split_kind {
  BS_TOK_REMOVED,
  BS_TOK_ISOLATED,
  BS_TOK_WITH_PREVIOUS,
  BS_TOK_WITH_NEXT,
  BS_TOK_CONTIGUOUS
};

typedef struct bs_tok_step {
  int kind, flags, split;
  bs_tok_pattern pattern;
  char *text; /* with a NUL after it */
  size_t bytes;
  uint64_t begin, end;
} bs_tok_step;

enum { BS_TOK_MAX_STEPS = 64 };
typedef struct bs_tok_steps {
  bs_tok_step *at;
  size_t n;
} bs_tok_steps;

void bs_tok_steps_free(bs_tok_steps *steps);

/* ---- added tokens (added.c) ------------------------------------------------------------------ */

enum bs_tok_added_flag { BS_TOK_SPECIAL = 1, BS_TOK_SINGLE_WORD = 2, BS_TOK_LSTRIP = 4, BS_TOK_RSTRIP = 8 };

typedef struct bs_tok_added {
  char *text;
  size_t bytes;
  uint32_t id;
  int flags;
} bs_tok_added;

/* Tokens that are looked for in a text, sorted by their bytes. */
typedef struct bs_tok_added_set {
  bs_tok_added *at;
  size_t n, room;
} bs_tok_added_set;

int32_t bs_tok_added_add(bs_tok_added_set *set, const char *text, size_t bytes, uint32_t id, int flags,
                         bs_error *err);
void bs_tok_added_sort(bs_tok_added_set *set);
void bs_tok_added_free(bs_tok_added_set *set);
/* Splits a text into added tokens and what lies between them, appended to `out` with its text. literal:
 * special tokens are text. */
void bs_tok_added_split(const bs_tok_added_set *set, const char *text, size_t bytes, int is_first,
                        int literal, bs_tok_list *out);

/* ---- models ---------------------------------------------------------------------------------- */

enum bs_tok_model_kind { BS_TOK_BPE = 1, BS_TOK_WORDPIECE };

typedef struct bs_tok_merge {
  uint64_t pair; /* left id << 32 | right id */
  uint32_t rank, id;
} bs_tok_merge;

typedef struct bs_tok_model {
  int kind;
  bs_tok_vocab vocab;
  uint32_t unk; /* BS_TOK_NONE: none */
  char *prefix; /* of a token inside of a word; NULL: none */
  /* BPE */
  char *suffix;         /* of a token that ends a word; NULL: none */
  bs_tok_merge *merges; /* a hash table; id BS_TOK_NONE: free */
  size_t n_merges;      /* its slots, a power of two; 0: no merges */
  uint32_t
      *ranks; /* of an id: any two neighbours become that token; BS_TOK_NONE: never. NULL: merges count */
  uint32_t bytes[256];   /* the tokens <0x00> to <0xFF>; BS_TOK_NONE: there is none */
  uint32_t single[2048]; /* the tokens of one character below U+0800 */
  int byte_fallback, fuse_unk, ignore_merges;
  /* WordPiece */
  uint64_t longest_word; /* characters */
} bs_tok_model;

/* bpe.c. Finds all that is looked up often, and makes room for n merges. */
int32_t bs_tok_bpe_prepare(bs_tok_model *model, size_t n_merges, bs_error *err);
/* Adds a merge of two tokens into one; of two with the same pair the later one counts. */
void bs_tok_bpe_merge(bs_tok_model *model, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/* What one call needs; the caller frees (bs_tok_work_free). */
typedef struct bs_tok_work {
  bs_tok_matcher matcher;
  bs_tok_list now, next;
  bs_text text, other;
  struct bs_tok_symbol *symbols;
  size_t symbols_room;
  struct bs_tok_candidate *heap;
  size_t heap_room;
  int64_t *ids;
  size_t n_ids, ids_room;
  size_t most; /* bytes that a step may make of the text */
  size_t held; /* of a decode: bytes at the end of the text that more tokens may change */
} bs_tok_work;

int32_t bs_tok_work_make(bs_tok_work *out_work, bs_error *err);
void bs_tok_work_free(bs_tok_work *work);
/* What a text of so many bytes may become. */
void bs_tok_work_limit(bs_tok_work *work, size_t bytes);
/* A text that a step made is within the limit, and there was memory for it. */
int32_t bs_tok_work_check(const bs_tok_work *work, const bs_text *text, bs_error *err);
int32_t bs_tok_work_id(bs_tok_work *work, uint32_t id, bs_error *err);

/* Adds the ids of a piece to work->ids (bpe.c, wordpiece.c). */
int32_t bs_tok_bpe_encode(const bs_tok_model *model, bs_tok_work *work, const char *text, size_t bytes,
                          bs_error *err);
int32_t bs_tok_wordpiece_encode(const bs_tok_model *model, bs_tok_work *work, const char *text, size_t bytes,
                                bs_error *err);

/* ---- the whole ------------------------------------------------------------------------------- */

struct bs_tokenizer {
  bs_tok_steps normalizers, splitters, decoders;
  bs_tok_added_set added, added_normalized; /* looked for before and after the normalizers */
  bs_tok_model model;
  bs_tok_vocab extra;  /* added tokens that the model has not */
  uint8_t *is_special; /* of an id */
  bs_text *shown; /* of an id: what decoders see in place of its text; .data NULL: its text. NULL: of none */
  int no_decoder; /* tokens are joined by blanks */
  int64_t *before, *after; /* ids around a text */
  size_t n_before, n_after;
  int64_t roles[4]; /* enum bs_token_role */
  int64_t ends[48]; /* that end a text (ends.c) */
  uint32_t n_ends;
};

/* api.c: of both vocabularies. */
uint32_t bs_tok_size(const bs_tokenizer *tokenizer);
uint32_t bs_tok_find(const bs_tokenizer *tokenizer, const char *text, size_t bytes);
const char *bs_tok_text(const bs_tokenizer *tokenizer, int64_t id, size_t *out_bytes);

/* rewrite.c: the text after a step, appended to `out`. */
int32_t bs_tok_rewrite(const bs_tok_step *step, bs_tok_matcher *matcher, const char *text, size_t bytes,
                       int is_first, bs_text *out, bs_error *err);
/* All steps of normalizers; the result is in work->text, and work->other is used. */
int32_t bs_tok_normalize(const bs_tok_steps *steps, bs_tok_work *work, const char *text, size_t bytes,
                         bs_error *err);
/* split.c: splits or rewrites the pieces of work->now. */
int32_t bs_tok_split(const bs_tok_step *step, bs_tok_work *work, bs_error *err);
/* decode.c: the character that stands for a byte, and back; -1: it stands for none. */
uint32_t bs_tok_byte_character(unsigned char byte);
int bs_tok_character_byte(uint32_t c);

/* read.c, read_steps.c */
int32_t bs_tok_read(const char *path, bs_tokenizer *out_tokenizer, bs_error *err);
struct json_t;
#endif
