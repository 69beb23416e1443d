package a

func (p *Pair[K, V]) more() {}
