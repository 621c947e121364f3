// A kernel that resizes decoded images into the rows of a slot.

typedef unsigned char uchar;
typedef unsigned int uint;

const uint MAX_IMAGES = 64;        // images per launch; the array of images is a part of the kernel's argument
const uint BLOCKS_PER_IMAGE = 16;

// One decoded image. Strides are in bytes. To apply the EXIF orientation, the host makes strides negative, or exchanges
// line_stride and pixel_stride.
struct Image {
    const uchar* pixels;     // the pixel at the top left
    long long line_stride;   // from one line of pixels to the next
    long long pixel_stride;  // from one pixel of a line to the next
    uint height, width;             // size of the image in pixels
    float top, left;                // corner of the part of the image that becomes the row, in pixels
    float part_height, part_width;  // size of this part, in pixels
    uint place;                     // index of the row in the group
    uint padding;                   // unused
};

struct ResizeJob {
    uchar* out;              // first batch of the leaf
    long long batch_stride;  // bytes from one batch to the next
    uint batch_rows;         // rows of a batch
    uint height, width;      // size of a row, in pixels
    uint channels;           // channels of a row and of every image
    Image images[MAX_IMAGES];
};

// The source pixels of one output pixel along one axis, with their weights: a triangle filter, which is wider if the
// axis becomes shorter. `origin` and `length` describe the part of the axis that becomes the row. The filter also reads
// pixels next to this part. It is the bilinear filter of Pillow, without Pillow's rounding between the two axes.
struct AxisFilter {
    float centre, scale;     // middle and half of the width of the triangle, in source pixels
    uint first, end;         // indices of the source pixels: from `first` to `end - 1`

    __device__ AxisFilter(uint position, uint source, uint target, float origin, float length) {
        const float ratio = length / (float)target;
        scale = ratio > 1.0f ? ratio : 1.0f;
        centre = origin + (position + 0.5f) * ratio;
        const float low = centre - scale + 0.5f, high = centre + scale + 0.5f;
        first = low > 0.0f ? (uint)low : 0;
        end = (uint)high < source ? (uint)high : source;
    }

    __device__ float weight(uint i) const {
        const float distance = ((float)i + 0.5f - centre) / scale;
        const float weight = 1.0f - (distance < 0.0f ? -distance : distance);
        return weight > 0.0f ? weight : 0.0f;
    }
};

extern "C" __global__ void resize_images(ResizeJob job) {
    const Image image = job.images[blockIdx.x / BLOCKS_PER_IMAGE];
    const uint pixels = job.height * job.width;
    uchar* row = job.out + (long long)(image.place / job.batch_rows) * job.batch_stride +
                 (long long)(image.place % job.batch_rows) * pixels * job.channels;
    const uint first = blockIdx.x % BLOCKS_PER_IMAGE * blockDim.x + threadIdx.x;
    for (uint pixel = first; pixel < pixels; pixel += BLOCKS_PER_IMAGE * blockDim.x) {
        const AxisFilter vertical(pixel / job.width, image.height, job.height, image.top, image.part_height);
        const AxisFilter horizontal(pixel % job.width, image.width, job.width, image.left, image.part_width);
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f}, total = 0.0f;
        for (uint y = vertical.first; y < vertical.end; y++) {
            const uchar* line = image.pixels + y * image.line_stride;
            const float row_weight = vertical.weight(y);
            for (uint x = horizontal.first; x < horizontal.end; x++) {
                const float weight = row_weight * horizontal.weight(x);
                total += weight;
                for (uint channel = 0; channel < job.channels; channel++)
                    sums[channel] += weight * line[x * image.pixel_stride + channel];
            }
        }
        for (uint channel = 0; channel < job.channels; channel++)
            row[pixel * job.channels + channel] = (uchar)(sums[channel] / total + 0.5f);
    }
}
