/* SPDX-License-Identifier: MIT
 *
 * text.h - text to token ids and back: libblockshock-text. A tokenizer is read from a model's tokenizer.json
 * or from a GGUF file: byte-level BPE, SentencePiece's BPE with bytes, or WordPiece. Its ids are those of
 * Hugging Face's package tokenizers.
 *
 *   bs_tokenizer_open("models/minilm", &tokenizer, &err)
 *     bs_tokenizer_encode(tokenizer, text, bytes, 0, ids, room, &n, &err)
 *     bs_tokenizer_decode(tokenizer, ids, n, 0, out, room, &bytes, &err)
 *   bs_tokenizer_close(tokenizer)
 *
 * Threads. A tokenizer does not change after it is open: any number of threads may use one at the same time.
 * A bs_text_stream belongs to one thread at a time.
 *
 * Errors. Functions return an enum bs_status and fill a caller-owned bs_error (NULL is allowed). A part of a
 * tokenizer.json, or a name in a GGUF file, that is not known is refused (BS_UNSUPPORTED, BS-TOK-KIND names
 * it): ids are never guessed. A library that was built without PCRE2 or utf8proc opens no tokenizer
 * (BS_UNAVAILABLE).
 *
 * Ownership. A tokenizer and a stream belong to the caller, who closes them; a tokenizer outlives its
 * streams. Texts that a function gives belong to the tokenizer or the stream. What the caller passes is read
 * during the call alone.
 *
 * Units. Texts are UTF-8 of a given number of bytes; a text of the caller needs no NUL.
 */
#ifndef BLOCKSHOCK_TEXT_H
#define BLOCKSHOCK_TEXT_H

#include "blockshock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_tokenizer bs_tokenizer;     /* reads text */
typedef struct bs_text_stream bs_text_stream; /* text of tokens that come one by one */

/* Of bs_tokenizer_encode. */
enum bs_encode_flag {
  BS_ENCODE_PLAIN = 1,  /* without the tokens that the model wants around a text, such as [CLS] or <s> */
  BS_ENCODE_LITERAL = 2 /* the names of special tokens in the text are text: for text that is not trusted */
};
/* Of bs_tokenizer_decode and bs_text_stream_open. */
enum bs_decode_flag { BS_DECODE_SPECIAL = 1 /* special tokens are text too; by default they are left out */ };
/* Of bs_tokenizer_special. */
enum bs_token_role {
  BS_TOKEN_BOS = 0, /* begins a text */
  BS_TOKEN_EOS = 1, /* ends a text: a generator stops there */
  BS_TOKEN_UNK = 2, /* stands for what the vocabulary has not */
  BS_TOKEN_PAD = 3  /* fills up a batch */
};

/* Opens a tokenizer. path: a model's folder, or a file of it: tokenizer.json beside the file is read. The
 * roles of tokens come from tokenizer_config.json, where it is there. Of a GGUF file its own tokenizer is
 * read. */
BS_API int32_t bs_tokenizer_open(const char *path, bs_tokenizer **out_tokenizer, bs_error *err);
BS_API void bs_tokenizer_close(bs_tokenizer *tokenizer);

/* Makes the ids of a text. flags: enum bs_encode_flag. *out_n is how many ids the text has, and the first
 * `room` of them are written: with room 0 (ids may be NULL then) it counts. Text that is not UTF-8 is
 * BS-TOK-UTF8 with the place of the first wrong byte. */
BS_API int32_t bs_tokenizer_encode(const bs_tokenizer *tokenizer, const char *text, uint64_t bytes,
                                   uint32_t flags, int64_t *ids, uint64_t room, uint64_t *out_n,
                                   bs_error *err);
/* Makes the text of ids. flags: enum bs_decode_flag. *out_bytes is the size of the text, and the first `room`
 * bytes of it are written, without a NUL. An id that no token has is BS-TOK-ID. Bytes that are not UTF-8
 * become U+FFFD. */
BS_API int32_t bs_tokenizer_decode(const bs_tokenizer *tokenizer, const int64_t *ids, uint64_t n,
                                   uint32_t flags, char *text, uint64_t room, uint64_t *out_bytes,
                                   bs_error *err);

/* One more than the highest id. */
BS_API uint64_t bs_tokenizer_size(const bs_tokenizer *tokenizer);
/* The id of a token as the vocabulary writes it ("<s>", "##ing"); -1: there is none. */
BS_API int64_t bs_tokenizer_id(const bs_tokenizer *tokenizer, const char *token);
/* The text of a token as the vocabulary writes it, with a NUL behind it, until the tokenizer is closed; NULL:
 * no such id. */
BS_API const char *bs_tokenizer_token(const bs_tokenizer *tokenizer, int64_t id);
/* The id that has a role (enum bs_token_role); -1: none, or the files do not say it. */
BS_API int64_t bs_tokenizer_special(const bs_tokenizer *tokenizer, uint32_t role);
/* 1: a generator stops at this id: BS_TOKEN_EOS, and what else ends a text, a turn or a message, as the files
 * say: eos, eot and eom of GGUF and the tokens that llama.cpp knows by their text, or the list of
 * generation_config.json.
 */
BS_API int bs_tokenizer_ends(const bs_tokenizer *tokenizer, int64_t id);

/* The text of tokens that come one by one, in whole characters. flags: enum bs_decode_flag. The tokenizer
 * outlives the stream. */
BS_API int32_t bs_text_stream_open(const bs_tokenizer *tokenizer, uint32_t flags, bs_text_stream **out_stream,
                                   bs_error *err);
/* Adds a token. *out_text is what became readable, of *out_bytes bytes (perhaps 0), until the next call for
 * this stream. */
BS_API int32_t bs_text_stream_add(bs_text_stream *stream, int64_t id, const char **out_text,
                                  uint64_t *out_bytes, bs_error *err);
/* What is left: bytes that never became a character, as U+FFFD. The stream is then as new. */
BS_API int32_t bs_text_stream_end(bs_text_stream *stream, const char **out_text, uint64_t *out_bytes,
                                  bs_error *err);
BS_API void bs_text_stream_close(bs_text_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
