/* SPDX-License-Identifier: MIT
 * image.h - the device code that is part of the plugin: a cubin for each ops/NAME.cu, or several in one fat
 * binary. The tables are written by the build (cmake/BsCuda.cmake) into its own folder. */
#ifndef BS_PLUGIN_CUDA_IMAGE_H
#define BS_PLUGIN_CUDA_IMAGE_H
#include <stdint.h>

#define CUDA_IMAGES_MAX 64u

typedef struct cuda_image {
  const char *name; /* of the file, without .cu */
  const void *data;
} cuda_image;

/* What the images hold code for. */
typedef struct cuda_arch {
  const char *name;   /* "sm_90a" */
  int32_t capability; /* 10 major + minor */
  int32_t exact;      /* 1: this capability alone; 0: also higher minors of the major */
} cuda_arch;

extern const cuda_image cuda_images[];
extern const uint32_t cuda_image_count;
extern const cuda_arch cuda_archs[];
extern const uint32_t cuda_arch_count;
#endif
