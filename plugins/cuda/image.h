/* SPDX-License-Identifier: MIT
 * image.h - the device code that is part of the plugin: a cubin for each ops/NAME.cu, or several in one fat
 * binary. The tables are written by the build (cmake/BsCuda.cmake) into its own folder. */
#ifndef BS_PLUGIN_CUDA_IMAGE_H
#define BS_PLUGIN_CUDA_IMAGE_H
#include <stdint.h>

#define CUDA_IMAGES_MAX 64u

typedef struct cuda_image {
  const char *name; /* of the file, without .cu */
  const void *data, *end;
} cuda_image;

/* The devices that can run the code: those of exactly its capability; also higher minors of the same major;
 * or all higher capabilities too (PTX, which the driver compiles). */
enum cuda_reach { CUDA_REACH_EXACT = 1, CUDA_REACH_MAJOR = 2, CUDA_REACH_UP = 3 };

/* An architecture for which the images have code. */
typedef struct cuda_arch {
  const char *name;   /* "sm_90a", "compute_80" */
  int32_t capability; /* 10 major + minor */
  int32_t reach;      /* enum cuda_reach */
} cuda_arch;

extern const cuda_image cuda_images[];
extern const uint32_t cuda_image_count;
extern const cuda_arch cuda_archs[];
extern const uint32_t cuda_arch_count;
#endif
