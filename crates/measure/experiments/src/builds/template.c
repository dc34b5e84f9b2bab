/* Words and how often each comes, by open addressing. */
struct entry_@ {
    char key[24];
    unsigned long count;
};

struct table_@ {
    struct entry_@ entries[64];
    unsigned used;
};

static unsigned hash_@(const char *key) {
    unsigned hash = $1u;
    while (*key != '\0')
        hash = (hash ^ (unsigned char)*key++) * 16777619u;
    return hash;
}

static struct entry_@ *entry_of_@(struct table_@ *table, const char *key) {
    unsigned at = hash_@(key) % 64u;
    while (table->entries[at].count != 0) {
        if (strcmp(table->entries[at].key, key) == 0)
            return &table->entries[at];
        at = (at + 1u) % 64u;
    }
    if (table->used == 63u)
        return NULL;
    table->used++;
    strncpy(table->entries[at].key, key, sizeof table->entries[at].key - 1);
    return &table->entries[at];
}

static unsigned long count_words_@(const char *text) {
    struct table_@ table;
    unsigned long most = 0;
    memset(&table, 0, sizeof table);
    while (*text != '\0') {
        char word[24];
        size_t length = 0;
        struct entry_@ *entry;
        while (*text != '\0' && !isalpha((unsigned char)*text))
            text++;
        while (isalpha((unsigned char)*text)) {
            if (length + 1 < sizeof word)
                word[length++] = (char)tolower((unsigned char)*text);
            text++;
        }
        word[length] = '\0';
        if (length == 0 || (entry = entry_of_@(&table, word)) == NULL)
            continue;
        if (++entry->count > most)
            most = entry->count;
    }
    return most * 1000u + table.used;
}

/* Sums, products and brackets, by recursive descent. */
static long sum_@(const char **text);

static long factor_@(const char **text) {
    long value = 0;
    while (**text == ' ')
        ++*text;
    if (**text == '(') {
        ++*text;
        value = sum_@(text);
        if (**text == ')')
            ++*text;
        return value;
    }
    while (isdigit((unsigned char)**text))
        value = (value * 10 + (*(*text)++ - '0')) % $2L;
    return value;
}

static long sum_@(const char **text) {
    long value = factor_@(text);
    for (;;) {
        switch (**text) {
        case ' ': ++*text; break;
        case '+': ++*text; value += factor_@(text); break;
        case '-': ++*text; value -= factor_@(text); break;
        case '*': ++*text; value = value * factor_@(text) % $2L; break;
        default: return value;
        }
    }
}

/* A list that is built, sorted by merging, and freed. */
struct node_@ {
    struct node_@ *next;
    unsigned key;
};

static struct node_@ *merged_@(struct node_@ *left, struct node_@ *right) {
    struct node_@ head, *tail = &head;
    while (left != NULL && right != NULL) {
        struct node_@ **smaller = left->key <= right->key ? &left : &right;
        tail->next = *smaller;
        tail = *smaller;
        *smaller = (*smaller)->next;
    }
    tail->next = left != NULL ? left : right;
    return head.next;
}

static struct node_@ *sorted_@(struct node_@ *list, unsigned length) {
    struct node_@ *middle = list, *rest;
    unsigned step;
    if (length < 2)
        return list;
    for (step = 1; step < length / 2; step++)
        middle = middle->next;
    rest = middle->next;
    middle->next = NULL;
    return merged_@(sorted_@(list, length / 2), sorted_@(rest, length - length / 2));
}

static unsigned long list_@(unsigned length) {
    struct node_@ *list = NULL, *node;
    unsigned long check = 0;
    unsigned key = $3u, made = 0, place = 1;
    while (made < length && (node = malloc(sizeof *node)) != NULL) {
        key = key * 1103515245u + 12345u;
        node->key = key >> 16;
        node->next = list;
        list = node;
        made++;
    }
    list = sorted_@(list, made);
    while ((node = list) != NULL) {
        check = check * 31u + (unsigned long)node->key * place++;
        list = node->next;
        free(node);
    }
    return check;
}

/* A small matrix, multiplied by itself. */
static unsigned long power_@(unsigned times) {
    double matrix[6][6], product[6][6];
    int row, column, inner;
    for (row = 0; row < 6; row++)
        for (column = 0; column < 6; column++)
            matrix[row][column] = (double)((row * $4 + column) % 7) / 8.0;
    while (times-- > 0) {
        for (row = 0; row < 6; row++) {
            for (column = 0; column < 6; column++) {
                product[row][column] = 0.0;
                for (inner = 0; inner < 6; inner++)
                    product[row][column] += matrix[row][inner] * matrix[inner][column] / 6.0;
            }
        }
        memcpy(matrix, product, sizeof matrix);
    }
    return (unsigned long)(matrix[1][2] * 1000000.0);
}

static unsigned long part_@(void) {
    static const char text[] = "The quick brown fox $1 jumps over the lazy dog, the $2nd time";
    const char *expression = "($1 + $2) * ($3 - $4) + 12 * (7 - 3)";
    char line[64];
    unsigned long check = count_words_@(text);
    check = check * 33u + (unsigned long)sum_@(&expression);
    check = check * 33u + list_@($4u);
    check = check * 33u + power_@(3);
    sprintf(line, "%lx-%s", check, "part_@");
    return check ^ hash_@(line);
}

